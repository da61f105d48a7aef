"""SQL by name. Each ``-- name: word`` starts a statement; its comment says what it is for.

What several statements must say alike stands here once; ``{word}`` in a statement stands for it.
"""

from __future__ import annotations

import re
from pathlib import Path

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SHARED = re.compile(r"\{(\w+)\}")

# Whether a row of taskmill_control, called control, pauses the task whose columns are at hand: with all others, or with
# those of its group or domain. A pause whose time is over pauses until somebody ends it.
PAUSES_IT = (
    "control.paused_at IS NOT NULL AND (control.kind = 'scheduler'"
    " OR control.kind = 'group' AND control.name = group_name"
    " OR control.kind = 'domain' AND control.name = substr(type, 1, instr(type, '::') - 1))"
)
# Since when the task has been paused with others; NULL if it is not.
PAUSED_WITH_OTHERS_SINCE = f"(SELECT min(control.paused_at) FROM taskmill_control AS control WHERE {PAUSES_IT})"  # noqa: S608 - no values
# Where the time-to-live of a task counts from: its submission, that of an occurrence from when it is due. Of what was
# due at once the place in the queue tells, which steps of the clock have moved.
CLOCK_FROM = (
    "CASE WHEN due_at IS NULL OR attempt > 0 THEN coalesce(renewed_at, queued_at)"
    " WHEN series_id IS NOT NULL THEN due_at ELSE created_at END"
)
# The budget of a task, where it is text that can be read. One that is not must not keep others from being read.
BUDGET = "CASE WHEN io NOT GLOB '*[^ -~]*' THEN io END"
SHARED = {
    "budget": BUDGET,
    "pauses_it": PAUSES_IT,
    "paused_with_others_since": PAUSED_WITH_OTHERS_SINCE,
    "clock_from": CLOCK_FROM,
}


def load(file: str) -> dict[str, str]:
    """The statements of one ``.sql`` file beside this module."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    text = _SHARED.sub(lambda word: SHARED[word[1]], text)
    parts = _HEADING.split(text)
    return {name: sql.strip().rstrip(";") for name, sql in zip(parts[1::2], parts[2::2], strict=True)}
