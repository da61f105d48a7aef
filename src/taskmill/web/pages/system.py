"""The system: versions, the store, settings in effect, and what ``taskmill doctor`` finds."""

from __future__ import annotations

import platform

from taskmill import __version__
from taskmill.doctor import findings
from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.shapes import FindingAnswer, SystemAnswer


async def system(backend: Backend, asked: CheckedRequest) -> SystemAnswer:  # noqa: ARG001 - all pages are called alike
    reader = await backend.reader()
    found = await findings(reader)
    return SystemAnswer(
        versions={"taskmill": __version__, "python": platform.python_version()},
        store=await reader.facts(),
        settings=await backend.scheduler.settings(),
        findings=[FindingAnswer(level=each.level, subject=each.subject, text=each.text) for each in found],
        is_healthy=not any(each.level == "problem" for each in found),
    )
