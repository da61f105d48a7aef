"""The tasks that ended last, found without an index over all of history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from taskmill.model.status import Ending

NEWEST_FIRST = "ORDER BY ended_at DESC, id DESC"
OLDEST_FIRST = "ORDER BY ended_at, id"


def last_ended(
    where: str,
    parameters: Sequence[Any],
    limit: int,
    endings: Iterable[Ending] = tuple(Ending),
    order: str = NEWEST_FIRST,
) -> tuple[str, list[Any]]:
    """Return a query for ``ended_at`` and ``id`` of the first ``limit`` matching tasks, and its parameters.

    One index over all endings in this order would slow down every ending. So each kind of ending has its own index, and
    the query merges the first rows of each.
    """
    arms = [
        f"SELECT * FROM (SELECT ended_at, id FROM taskmill_history WHERE ending = '{ending}' AND {where}"  # noqa: S608
        f" {order} LIMIT ?) AS {ending}"
        for ending in endings
    ]
    query = f"SELECT ended_at, id FROM ({' UNION ALL '.join(arms)}) AS last_of_each {order} LIMIT ?"  # noqa: S608
    return query, [*[*parameters, limit] * len(arms), limit]
