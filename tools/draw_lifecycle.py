"""Draw the life of a task, from the table in ``taskmill/model/lifecycle.py``, into its page in the documentation.

    python tools/draw_lifecycle.py [--check]

With ``--check`` nothing is written; the exit code is 1 if the page is not current.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from taskmill.model.lifecycle import MARKS, TRANSITIONS, Mark, Standing, Transition
from taskmill.model.status import Ending

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "lifecycle.md"
BEGIN, END = "<!-- drawn by tools/draw_lifecycle.py -->\n", "<!-- end of what was drawn -->\n"


def diagram() -> str:
    """Return the picture: one arrow for each pair of standings, with the events that lead from one to the other."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for transition in TRANSITIONS:
        for source, target in transition.edges():
            if source != target:
                events = arrows.setdefault((_node(source), _node(target)), [])
                if transition.event not in events:
                    events.append(transition.event)
    lines = [f"    {source} --> {target}: {'<br/>'.join(events)}" for (source, target), events in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


def _node(standing: Standing) -> str:
    """Return the name of a standing in the picture, in which all endings are one."""
    return "ended" if isinstance(standing, Ending) else standing or "[*]"


def marks() -> str:
    rows = ((mark, f"`{meaning.column}`", meaning.text) for mark, meaning in MARKS.items())
    return _table(("mark", "column", "meaning"), rows)


def transitions() -> str:
    return _table(("a task", "from", "to", "writes"), (_line(transition) for transition in TRANSITIONS))


def _line(transition: Transition) -> tuple[str, ...]:
    sources = ", ".join(standing or "not stored" for standing in transition.sources)
    written = [f"+ {mark}" for mark in transition.sets] + [f"± {mark}" for mark in transition.may_set]
    written += [f"− {mark}" for mark in transition.clears if mark not in transition.may_set]
    return (
        transition.event,
        sources,
        transition.target or "stays",
        ", ".join([*written, *["one retry used"] * transition.uses_retry]),
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str | Mark, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def drawn(page: str) -> str:
    """Return the page with the picture and the tables of today."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join(
        [before + BEGIN, diagram(), "## Marks", "", marks(), "## Transitions", "", transitions(), END + after]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if the page is not current")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if arguments.check:
        return int(drawn(page) != page)
    PAGE.write_text(drawn(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
