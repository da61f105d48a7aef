"""Random pauses, checked against a model that counts paused time millisecond by millisecond."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from taskmill.core.ports import Store
from taskmill.model.attempt import MakeWay, Return, TryAgain, Verdict
from taskmill.model.controls import EVERYTHING, Scope, ScopeKind
from taskmill.model.status import Status
from taskmill.model.task import Claimed, Links
from taskmill.model.turn import Judged, Starts, Turn, TurnUpkeep
from taskmill.model.type_name import domain_of
from tests.store.contract.samples import NOW, add, new_task

TTL = 10**9
LONGEST_STEP = 50


@dataclass
class Account:
    """The expected times of one task."""

    id: int
    type: str
    group: str
    created_at: int
    waits_since: int
    """When its aging starts; in the future for a task that is not due yet."""
    is_series: bool = False
    claimed: Claimed | None = None
    own_pauses: set[str] = field(default_factory=set[str])
    not_waited: int = 0
    not_lived: int = 0

    @property
    def aged_from(self) -> int:
        return self.waits_since + self.not_waited

    @property
    def expires_at(self) -> int:
        return self.created_at + TTL + self.not_lived


class PausedTime:
    """Performs random actions on a store and computes the expected times."""

    def __init__(self, store: Store, seed: int, moved_to: Callable[[int], None] = lambda _now: None) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._moved_to = moved_to
        self.now = NOW
        self.accounts: list[Account] = []
        self.pauses: dict[Scope, int | None] = {}
        """The paused scopes, and until when."""
        # Unique names, so that several trials may share a store.
        self._types = [f"{name}{seed}::t" for name in "ab"]
        self._groups = [f"{name}{seed}" for name in "gh"]
        self.scopes = [
            EVERYTHING,
            *(Scope(ScopeKind.DOMAIN, domain_of(type)) for type in self._types),
            *(Scope(ScopeKind.GROUP, group) for group in self._groups),
        ]

    def is_paused(self, account: Account) -> bool:
        """True if any scope of the task is paused."""
        own = (EVERYTHING, Scope(ScopeKind.DOMAIN, domain_of(account.type)), Scope(ScopeKind.GROUP, account.group))
        return any(scope in self.pauses for scope in own)

    def stands_still(self, account: Account) -> bool:
        return account.claimed is None and (bool(account.own_pauses) or self.is_paused(account))

    def advance(self, by: int) -> None:
        """Let time pass, one millisecond at a time."""
        for _ in range(by):
            for account in self.accounts:
                if self.stands_still(account):
                    account.not_waited += self.now >= account.aged_from
                    account.not_lived += 1
            self.now += 1
            for scope in [scope for scope, until in self.pauses.items() if until is not None and until <= self.now]:
                del self.pauses[scope]
        self._moved_to(self.now)

    async def step(self) -> None:
        """Perform one random action, then let time pass."""
        deeds = [self.submit, self.pause, self.resume, self.start, self.end_attempt, self.let_return, self.own_pause]
        await self._random.choices(deeds, weights=[2, 4, 4, 3, 3, 1, 2])[0]()
        self.advance(self._random.choice([0, 1, self._random.randrange(LONGEST_STEP)]))
        if self._random.random() < 0.3:
            await self._store.end_pauses(self.now)

    async def submit(self) -> None:
        type, group = self._random.choice(self._types), self._random.choice(self._groups)
        kind = self._random.choice(["pending", "scheduled", "series"])
        due_at = self.now + self._random.randrange(1, 200) if kind == "scheduled" else None
        (id,) = await add(
            self._store,
            new_task(
                type=type,
                group=group,
                created_at=self.now,
                queued_at=self.now if due_at is None else due_at,
                status=Status.PENDING if due_at is None else Status.SCHEDULED,
                due_at=due_at,
                due_is_relative=due_at is not None,
                expires_at=self.now + TTL,
                links=Links(every_ms=10**6) if kind == "series" else None,
            ),
        )
        account = Account(id, type, group, self.now, self.now if due_at is None else due_at, kind == "series")
        self.accounts.append(account)

    async def pause(self) -> None:
        scope = self._random.choice(self.scopes)
        until = self._random.choice([None, None, self.now + self._random.randrange(1, 100)])
        fresh = await self._store.pause(scope, self.now, until)
        assert fresh == (scope not in self.pauses)
        self.pauses[scope] = until

    async def resume(self) -> None:
        scope = self._random.choice(self.scopes)
        if scope in self.pauses:
            assert await self._store.resume(scope, self.now)
            del self.pauses[scope]

    async def start(self) -> None:
        await self._store.end_pauses(self.now)
        ready = [account for account in self.accounts if account.claimed is None and not self.stands_still(account)]
        if ready:
            account = self._random.choice(ready)
            turn = Turn(now=self.now, upkeep=TurnUpkeep(promote=True), starts=Starts(claims=[account.id]))
            for claimed in (await self._store.turn(turn)).claimed:
                self.check_place(account, claimed)
                account.claimed = claimed

    async def end_attempt(self) -> None:
        running = [account for account in self.accounts if account.claimed is not None]
        if running:
            account = self._random.choice(running)
            verdicts: list[Verdict] = [Return(), TryAgain("e", None), MakeWay(), MakeWay()]
            verdict = self._random.choice(verdicts)
            if isinstance(verdict, MakeWay):
                account.own_pauses.add("preempted")
            assert account.claimed is not None
            result = await self._store.turn(Turn(now=self.now, judged=[Judged(account.claimed, verdict, 1)]))
            assert result.lost == {}
            account.claimed = None

    async def let_return(self) -> None:
        """Return preempted tasks to the queue."""
        await self._store.turn(Turn(now=self.now, upkeep=TurnUpkeep(resume_preempted=True)))
        for account in self.accounts:
            account.own_pauses.discard("preempted")

    async def own_pause(self) -> None:
        # Before its first attempt an occurrence gets a new place when it is resumed, which another test covers.
        tried = [account for account in self.accounts if account.is_series and await self._was_tried(account)]
        if tried:
            account = self._random.choice(tried)
            if "series" in account.own_pauses:
                await self._store.resume_series(account.id, self.now)
                account.own_pauses.discard("series")
            else:
                await self._store.pause_series(account.id, self.now)
                account.own_pauses.add("series")

    async def _was_tried(self, account: Account) -> bool:
        record = await self._store.get(account.id)
        return record is not None and record.attempt > 0

    async def resume_everything(self) -> None:
        while running := [account for account in self.accounts if account.claimed is not None]:
            del running
            await self.end_attempt()
        await self.let_return()
        for account in self.accounts:
            if "series" in account.own_pauses:
                await self._store.resume_series(account.id, self.now)
                account.own_pauses.clear()
        for scope in self._random.sample(self.scopes, len(self.scopes)):
            await self._store.resume(scope, self.now)
            self.pauses.pop(scope, None)
            self.advance(self._random.randrange(3))

    async def check(self) -> None:
        """Assert that, with everything resumed, every task has the expected place and deadline."""
        self.advance(300)
        result = await self._store.turn(
            Turn(
                now=self.now, upkeep=TurnUpkeep(promote=True), starts=Starts(claims=[each.id for each in self.accounts])
            )
        )
        claimed = {task.id: task for task in result.claimed}
        assert sorted(claimed) == [account.id for account in self.accounts]
        for account in self.accounts:
            self.check_place(account, claimed[account.id])

    def check_place(self, account: Account, claimed: Claimed) -> None:
        assert (claimed.id, claimed.queued_at, claimed.expires_at) == (
            account.id,
            account.aged_from,
            account.expires_at,
        )
