"""Controls in the store: settings, pauses and limits that were changed at run time. Each change increases the version.

A dispatcher plans with one version and claims nothing under another, so a task that was paused in the meantime does not
start (docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from taskmill.model.controls import NO_CHANGE, Bucket, Change, Controls, Declared, Pause, Scope, ScopeKind
from taskmill.policy.rates import carry_over, full_at, shifted, take_for_starts
from taskmill.policy.rules import Rules, combined, still_valid
from taskmill.store.sql.connection import Connection, decode_pairs, encoded, one
from taskmill.store.sql.statements import SQL

if TYPE_CHECKING:
    from taskmill.model.settings import RateLimit
    from taskmill.model.task import Claimed
    from taskmill.model.turn import TurnResult


class _Row(msgspec.Struct, array_like=True):
    kind: ScopeKind
    name: str
    change: str | None
    paused_at: int | None
    resume_at: int | None
    bucket: str | None


_decode_rows = msgspec.json.Decoder(list[_Row]).decode
_decode_ended = msgspec.json.Decoder(list[tuple[ScopeKind, str, int, int]]).decode
_decode_change = msgspec.json.Decoder(Change).decode
_decode_bucket = msgspec.json.Decoder(Bucket).decode
_decode_declared = msgspec.json.Decoder(Declared).decode


def version(connection: Connection) -> tuple[int, bool]:
    """Return the version, and whether any ended pause still has to give time back."""
    found, is_owed = connection.execute(SQL["version"]).fetchone()
    return found, bool(is_owed)


def read(connection: Connection) -> Controls:
    rows = {Scope(row.kind, row.name): row for row in _decode_rows(one(connection, SQL["controls"]))}
    ended = _decode_ended(one(connection, SQL["ended_pauses"]))
    return Controls(
        version(connection)[0],
        _declared(connection),
        {scope: _decode_change(row.change) for scope, row in rows.items() if row.change is not None},
        {scope: Pause(row.paused_at, row.resume_at) for scope, row in rows.items() if row.paused_at is not None},
        [(Scope(kind, name), Pause(since, until)) for kind, name, since, until in ended],
        {scope: _decode_bucket(row.bucket) for scope, row in rows.items() if row.bucket is not None},
    )


def _declared(connection: Connection) -> Declared | None:
    row = connection.execute(SQL["declared"]).fetchone()
    try:
        return None if row is None else _decode_declared(row[0])
    except (msgspec.MsgspecError, UnicodeError, TypeError):
        # The value is damaged; the next dispatcher writes it again.
        return None


def declare(connection: Connection, declared: Declared, now: int) -> None:
    """Store the program's settings. A setting that it has changed overrides an earlier change at run time."""
    before = _declared(connection)
    if before == declared:
        return
    found = read(connection)
    for scope, made in found.changes.items():
        kept = still_valid(made, before, declared, scope)
        if kept != made:
            _set_change(connection, scope, kept)
    connection.execute(SQL["declare"], (encoded(declared),))
    connection.execute(SQL["bump_version"])
    _carry_buckets_over(connection, found, now, declared=True)


def change(connection: Connection, changes: Mapping[Scope, Change], now: int) -> None:
    found = read(connection)
    for scope, made in changes.items():
        row = connection.execute(SQL["change_of"], scope).fetchone()
        before = NO_CHANGE if row is None or row[0] is None else _decode_change(row[0])
        _set_change(connection, scope, combined(before, made))
    connection.execute(SQL["bump_version"])
    _carry_buckets_over(connection, found, now, declared=False)


def _carry_buckets_over(connection: Connection, before: Controls, now: int, *, declared: bool) -> None:
    """Adapt token buckets to changed limits, keeping their present levels as far as they fit.

    After a declaration every bucket is stored again, because its ``full_at`` may differ; after a change, only buckets
    whose limit has changed.
    """
    old, new = _rules(before), _rules(read(connection))
    buckets: dict[Scope, Bucket] = {}
    for scope, bucket in before.buckets.items():
        was, limit = old.rate(scope), new.rate(scope)
        if was is not None and limit is not None and was != limit:
            buckets[scope] = carry_over(bucket, was, limit, max(now, bucket.at))
        elif declared:
            buckets[scope] = bucket
    fill_buckets(connection, {scope: new.rate(scope) for scope in buckets}, buckets)


def _rules(controls: Controls) -> Rules:
    return Rules(controls.declared or Declared(), controls)


def fill_buckets(
    connection: Connection, limits: Mapping[Scope, RateLimit | None], buckets: Mapping[Scope, Bucket]
) -> None:
    """Store token buckets, with the time at which each will be full if nothing more is taken."""
    if not buckets:
        return
    rows: list[tuple[str, str, str, int]] = []
    for scope, bucket in buckets.items():
        limit = limits[scope]
        full = bucket.at if limit is None else full_at(bucket, limit)
        rows.append((scope.kind, scope.name, encoded(bucket), full))
    connection.execute(SQL["fill_buckets"], (encoded(rows),))


def shift_buckets(connection: Connection, by_ms: int, now: int) -> None:
    """Move the times of token buckets after a step of the wall clock, which refills none and delays none."""
    found = read(connection)
    rules = _rules(found)
    fill_buckets(
        connection,
        {scope: rules.rate(scope) for scope in found.buckets},
        {scope: shifted(bucket, by_ms, now) for scope, bucket in found.buckets.items()},
    )


def _set_change(connection: Connection, scope: Scope, made: Change) -> None:
    connection.execute(SQL["set_change"], (*scope, None if made == NO_CHANGE else encoded(made)))


def take_from(
    connection: Connection,
    buckets: Sequence[tuple[Scope, RateLimit, Bucket]],
    claimed: Sequence[Claimed],
    now: int,
    result: TurnResult,
    *,
    among_nodes: bool,
) -> None:
    """Take one permit for each task that starts, from each rate limit that applies to it."""
    # Of a task that was asked to stop only the hook runs.
    starts = [(task.group, task.type) for task in claimed if task.stop is None]
    result.buckets = take_for_starts(buckets, starts, now, among_nodes=among_nodes)
    fill_buckets(connection, {scope: limit for scope, limit, _ in buckets}, dict(result.buckets))
    connection.execute(SQL["forget_full_buckets"], (now,))


def away(connection: Connection) -> list[tuple[int, int]]:
    """Return ``(id, cause)`` of preempted tasks."""
    return decode_pairs(one(connection, SQL["preempted"]))
