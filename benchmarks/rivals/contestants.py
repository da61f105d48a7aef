"""The queues that take part, where each keeps its tasks, and what each guarantees about them."""

from __future__ import annotations

from typing import Literal, NamedTuple

Workload = Literal["drain", "submit", "latency"]
WORKLOADS: tuple[Workload, ...] = ("drain", "submit", "latency")
SLOTS = 8
"""Tasks that each contestant may run at once."""


class Contestant(NamedTuple):
    """One queue, with the module of this folder that runs it."""

    name: str
    place: Literal["file", "server"]
    module: str | None
    """None for the Rust original, which is a program of its own."""
    package: str
    promise: str
    """What survives a crash, and what happens to a task whose process is killed while it runs."""
    prefix: str = ""
    """The prefix of the name of the file."""
    share: float = 1.0
    """The fraction of the tasks that a slow contestant gets; rates are compared."""


CONTESTANTS = (
    Contestant(
        "taskmill",
        "file",
        "taskmill_scheduler",
        "taskmill",
        "Each answered call survives a power cut. A killed task runs again. Endings go to history.",
    ),
    Contestant(
        'taskmill, `durability="process"`',
        "file",
        "taskmill_scheduler",
        "taskmill",
        'Like `durability="full"`, but a power cut may lose the last calls.',
        prefix="process:",
    ),
    Contestant(
        "taskmill for Rust",
        "file",
        None,
        "taskmill (crates.io)",
        "Survives a kill, but not a power cut (`synchronous = NORMAL`). Otherwise like taskmill.",
    ),
    Contestant(
        "Huey",
        "file",
        "huey_queue",
        "huey",
        "Each call survives a power cut (`fsync=True`). A task is deleted when it is taken: a kill loses it.",
    ),
    Contestant(
        "litequeue",
        "file",
        "litequeue_loop",
        "litequeue",
        "Each call survives a power cut (`synchronous = FULL` set by us). A killed task stays locked. No retries.",
    ),
    Contestant(
        "persist-queue",
        "file",
        "persist_queue_loop",
        "persist-queue",
        "Each call survives a power cut. A killed task runs again at the next start. No retries.",
        share=0.25,
    ),
    Contestant(
        "APScheduler 4",
        "file",
        "apscheduler_jobs",
        "apscheduler",
        "Each call survives a power cut. A killed job ends as abandoned. A pre-release.",
        share=0.1,
    ),
    Contestant(
        "DBOS",
        "file",
        "dbos_workflows",
        "dbos",
        "Each call survives a power cut. A killed workflow resumes. Inputs and results are kept.",
        share=0.1,
    ),
    Contestant(
        "taskmill",
        "server",
        "taskmill_scheduler",
        "taskmill",
        "A killed task runs again after its lease. Endings go to history.",
    ),
    Contestant(
        "PgQueuer",
        "server",
        "pgqueuer_worker",
        "pgqueuer",
        "A killed job is taken again when its heartbeat is old. Endings go to a log.",
    ),
    Contestant(
        "Procrastinate",
        "server",
        "procrastinate_worker",
        "procrastinate",
        "A killed job stays stalled until a task of the program retries it. Finished jobs are kept.",
        share=0.25,
    ),
    Contestant(
        "Chancy",
        "server",
        "chancy_worker",
        "chancy",
        "A killed job is recovered by a plugin that is on by default. Finished jobs are kept.",
        share=0.25,
    ),
    Contestant(
        "DBOS",
        "server",
        "dbos_workflows",
        "dbos",
        "A killed workflow resumes. Inputs and results are kept.",
        share=0.1,
    ),
)
