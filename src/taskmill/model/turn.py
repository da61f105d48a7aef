"""One turn of the dispatch loop: the plan that the store commits in one transaction, and its result.

The plan is frozen. The store executes it in the order of its parts and returns what it found and did.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from taskmill.model.attempt import AttemptFailure, StopReason, Verdict
from taskmill.model.cluster import Admission, Elsewhere, Others, Preemption
from taskmill.model.commit import Commit
from taskmill.model.controls import Bucket, Controls, Scope
from taskmill.model.settings import RateLimit
from taskmill.model.task import Claimed, DueTask, Lane, Place

Rate = tuple[Scope, RateLimit, Bucket]
"""A rate limit with its token bucket."""


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A verdict on a live attempt, with what the store needs to commit it."""

    task: Claimed
    verdict: Verdict
    duration_ms: int
    ended_at: int = 0
    """When the attempt ended, on the wall clock."""
    began_at: int | None = None
    """When the attempt of a prefetched task began. For other tasks the row already has it."""
    io: str | None = None
    """What the attempt has read, written and sent, as a budget in JSON."""
    stopped: bool = False
    """True if the verdict already includes a request to stop. Otherwise such a request overrides the verdict."""
    failure: AttemptFailure | None = None
    """The error that the attempt leaves; None if it did not fail."""


class TurnUpkeep(msgspec.Struct, frozen=True, gc=False):
    """Changes that are due by now."""

    promote: bool = False
    """True to put scheduled tasks that are due into the queue."""
    expire: bool = False
    """True to move tasks past their deadlines to history."""
    skip: bool = False
    """True to skip occurrences of recurring series that came due while the last occurrence is still active."""
    resume_preempted: bool = False
    """True to return tasks that were preempted by more urgent ones to the queue."""
    resume_eased: bool = False
    """True to return tasks that were preempted because of pressure to the queue."""

    def is_due(self) -> bool:
        return self != NO_UPKEEP


NO_UPKEEP = TurnUpkeep()


class Starts(msgspec.Struct, frozen=True, gc=False):
    """The tasks to start, and the rules by which they were chosen."""

    hooks: Sequence[int] = ()
    """Tasks that were asked to stop and whose hooks are due. No limit holds a hook back."""
    claims: Sequence[int] = ()
    prefetch: Set[int] = frozenset()
    """The claims for which no slot is free yet."""
    controls_version: int | None = None
    """The version of the controls used to choose the claims. If it is outdated, nothing is claimed."""
    lanes: Mapping[int, tuple[Lane, int]] | None = None
    """Maps each claim to its lane and the start of its wait. Set if other nodes claim from the same lanes. The store
    then claims the tasks that are first in the lane at commit time."""
    owes_paused_time: bool = False
    """True if the time of ended pauses is not yet given back to all tasks, so each claim is credited its own first."""
    rates: Sequence[Rate] = ()
    """Rate limits of the claims. A token is taken for each task that starts."""
    admission: Admission | None = None
    """The plan behind the claims, if cluster-wide limits apply to it. The store drops claims beyond these limits."""
    spare: int = 0
    """Free slots for which no task waits. Tasks that this turn releases may start in them."""
    preempt: Preemption | None = None
    """Waiting tasks for which running tasks of any node are to be preempted."""

    def is_needed(self) -> bool:
        return bool(self.claims or self.hooks or self.preempt is not None)


NO_STARTS = Starts()


class News(NamedTuple):
    """The point up to which changes by other processes are known."""

    last_id: int
    """The highest id that a task has had."""
    moves: int
    """How often other processes have changed the places of stored tasks."""


class DueFront(NamedTuple):
    """The next delayed tasks."""

    tasks: Sequence[DueTask] = ()
    until: int | None = None
    """Further tasks may be due from this instant on; None if there are no others."""


class Look(msgspec.Struct, frozen=True, gc=False):
    """What to read at the end of the turn."""

    survey: bool = False
    """True to look for lanes, times and stop requests that another process may have changed."""
    news: News | None = None
    """Set if another process has committed: the known news. Tasks that were stored after it are read."""
    queued: Collection[int] = ()
    """Tasks that other nodes have put into the queue. Their places are read."""
    refill: Sequence[Lane] = ()
    """Lanes whose first places are read again."""
    known_lanes: int = 0
    """The number of lanes that share the memory for the front of the queue."""
    slots: int | None = None
    """The slots of this node, if other nodes dispatch too. A survey then reads how many slots those use."""
    urgent: Collection[int] = ()
    """Urgent waiting tasks of which is read whether they were spawned: such a task does not preempt every other."""

    def is_needed(self) -> bool:
        return self.survey or self.news is not None or bool(self.queued or self.refill or self.urgent)


NO_LOOK = Look()


class Turn(msgspec.Struct, frozen=True, gc=False):
    """What one turn of the loop commits, in this order and in one transaction."""

    now: int
    planned_at: float | None = None
    """``now`` on the monotonic clock. If the turn waits for its transaction, ``now`` is moved on by the wait."""
    progress: Sequence[tuple[int, int, str]] = ()
    """``(id, attempt, progress)`` of attempts that reported progress."""
    begun: Sequence[tuple[int, int, int]] = ()
    """``(id, attempt, began at)`` of prefetched tasks that have begun and are still running."""
    judged: Sequence[Judged] = ()
    returns: Sequence[Claimed] = ()
    """Claimed tasks that were not started after all."""
    at_work: Sequence[int] | None = None
    """The tasks that this node runs. Set after a failed turn that may have committed claims; other claims are returned
    to the queue."""
    upkeep: TurnUpkeep = NO_UPKEEP
    starts: Starts = NO_STARTS
    look: Look = NO_LOOK
    patience: float = 0.0
    """How long, in seconds, the result may wait until the event loop has other work."""

    def is_empty(self) -> bool:
        return not (self.look.is_needed() or self.writes())

    def writes(self) -> bool:
        """True if the turn writes anything."""
        return bool(
            self.judged
            or self.starts.is_needed()
            or self.upkeep.is_due()
            or self.returns
            or self.progress
            or self.begun
            or self.at_work is not None
        )


class TurnResult(msgspec.Struct):
    """What a turn found and did."""

    now: int = 0
    """When it was committed."""
    in_one_call: bool = False
    """True if one call into the engine committed it, so that other threads could run meanwhile."""
    is_cancelled: bool = False
    """True if the caller was cancelled before the turn was committed. It has to raise ``CancelledError`` afterwards."""
    lost: dict[tuple[int, int], str | None] = msgspec.field(default_factory=dict[tuple[int, int], "str | None"])
    """Tokens of judged attempts whose verdicts were dropped, with the stop request that overrode each verdict, or None
    if the token is no longer held."""
    commit: Commit = msgspec.field(default_factory=Commit)
    waiting: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    """Judged tasks that wait for children, and how many."""
    claimed: list[Claimed] = msgspec.field(default_factory=list[Claimed])
    fronts: dict[Lane, list[Place]] = msgspec.field(default_factory=dict[Lane, list[Place]])
    front_size: int = 0
    """How many places of a lane were requested. A shorter answer means that the lane has no more."""
    lanes: list[Lane] | None = None
    """Found by a survey: all lanes with waiting tasks."""
    news: News | None = None
    """The news up to this turn, if it was read."""
    seen: Commit | None = None
    """Tasks that other processes have put into the queue, if they were read."""
    needs_survey: bool = False
    """True if other processes have done more than store a few tasks."""
    stops: list[tuple[int, StopReason]] = msgspec.field(default_factory=list[tuple[int, StopReason]])
    """Found by a survey: running tasks that were asked to stop, and why."""
    hooks: list[int] = msgspec.field(default_factory=list[int])
    """Found by a survey: tasks whose hooks may run."""
    controls: Controls | None = None
    """The controls in force, if they differ from those used to choose the starts."""
    buckets: Sequence[tuple[Scope, Bucket]] = ()
    """The token buckets after the turn."""
    elsewhere: Elsewhere | None = None
    """The slots of other nodes and how many are taken, if they were read."""
    others: Others | None = None
    """Found by a survey, if other nodes may dispatch."""
    refused: bool = False
    """True if cluster-wide limits refused a claim."""
    urgencies: Sequence[tuple[int, int, int]] = ()
    """Found by a survey: ``(id, priority, urgency)`` of running tasks, which may have become more urgent."""
    has_preempted: bool = False
    """Found by a survey: True if tasks wait that were preempted by more urgent ones."""
    has_eased: bool = False
    """Found by a survey: True if tasks wait that were preempted because of pressure."""
    spawned: Collection[int] = ()
    """Those of the urgent tasks in question that were spawned."""
    next_due: DueFront = DueFront()
    next_expiry: int | None = None
    next_beat: int | None = None
