"""A worker process imports a handler by its name, or the task type is refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from taskmill.define.domain import Domain
from taskmill.errors import ConfigError
from taskmill.execute.in_processes import check_importable
from tests.runtime.processes import handlers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX")

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


async def run_script(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, str(path)], capture_output=True, text=True, env=ENVIRONMENT
    )
    return done.stdout + done.stderr


MAIN_SCRIPT = """
    from __future__ import annotations
    import asyncio
    from dataclasses import dataclass
    from tests.runtime.processes.calls import CountingClock, outcome_of
    from taskmill.define.domain import Domain
    from taskmill.execute.in_processes import ProcessExecutor, check_importable

    domain = Domain("script")

    @dataclass
    class Point:
        x: int

    @domain.task(run_in="process")
    def triple(point: Point) -> str:
        return f"{__name__} {point.x * 3}"

    async def main():
        check_importable(triple.type.function, triple.name)
        executor = ProcessExecutor(CountingClock())
        print(await outcome_of(executor, triple, Point(14)))
        await executor.close()
"""


@pytest.mark.one_engine("how a process finds handlers is tested")
async def test_a_handler_of_the_main_script_is_found(tmp_path: Path) -> None:
    script = MAIN_SCRIPT + '\n    if __name__ == "__main__":\n        asyncio.run(main())\n'
    said = await run_script(tmp_path / "script.py", script)
    assert said == "Succeeded(result='\"__mp_main__ 42\"')\n"


def make_local() -> Callable[[], None]:
    def local() -> None: ...

    return local


@pytest.mark.one_engine("no store is opened")
def test_a_handler_that_no_process_can_import_is_refused() -> None:
    domain = Domain("refused")
    check_importable(handlers.move.type.function, handlers.move.name)
    with pytest.raises(ConfigError, match=r"refused::a: .*top level of a module.*make_local.<locals>.local"):
        check_importable(domain.task(name="a")(make_local()).type.function, "refused::a")
    with pytest.raises(ConfigError, match=r"refused::b: .*<lambda>"):
        check_importable(domain.task(name="b")(lambda: None).type.function, "refused::b")


@pytest.mark.one_engine("no store is opened")
def test_a_name_that_means_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "plain", None)
    with pytest.raises(ConfigError, match=r"processes\.handlers\.plain is something else"):
        check_importable(handlers.renamed.type.function, "work::renamed")


@pytest.mark.parametrize(("spec", "path"), [(None, None), ("package.__main__", "/somewhere/__main__.py")])
@pytest.mark.one_engine("no store is opened")
def test_an_interactive_session_and_a_main_file_are_refused(
    monkeypatch: pytest.MonkeyPatch, spec: str | None, path: str | None
) -> None:
    main = sys.modules["__main__"]
    described = None if spec is None else type(sys.__spec__)(spec, None)
    monkeypatch.setattr(main, "__spec__", described)
    monkeypatch.setattr(main, "__file__", path, raising=False)
    monkeypatch.setattr(handlers.plain, "__module__", "__main__")
    with pytest.raises(ConfigError, match="interactive session"):
        check_importable(handlers.plain, "work::plain")
