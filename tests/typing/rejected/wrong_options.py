"""Options that do not exist or have the wrong type. Every line with the mark, and no other, must be reported."""

from __future__ import annotations

from taskmill import Domain, Retry, Scheduler, Submission

domain = Domain("right", priority=5)
Domain("wrong", prioritty=5)  # refused
Domain("wrong", key="k")  # refused
Domain("wrong", retry=3)  # refused
Domain("wrong", priority="high")  # refused


def plain(path: str) -> str:
    return path


@domain.task
async def work(path: str) -> int:
    return len(path)


domain.task(name="a", retri=Retry.none())(plain)  # refused
domain.task(name="b", run_at=5)(plain)  # refused
domain.task(name="c", retry=3)(plain)  # refused
domain.task(name="d", run_in="thread")(plain)  # refused
domain.task(name="e", retry=Retry.none())(plain)

work.options(prioritty=5)  # refused
work.options(run_in="process")  # refused
work.options(priority="high")  # refused
work.options(run_at="tomorrow")  # refused
work.options(tags={"a": 1})  # refused
work.options(priority=5, key="k", run_after=1.5)

work.options(on_duplicate="replace")  # refused
work.options(ttl_from="start")  # refused
work.options(on_dependency_failure="stop")  # refused
work.options(key=("path",))  # refused
work.options(on_duplicate="supersede", ttl_from="first_attempt", on_dependency_failure="ignore")
domain.task(name="f", on_duplicate="replace")(plain)  # refused
domain.task(name="g", on_parent_expiry="stop")(plain)  # refused
domain.task(name="h", aliases=5)(plain)  # refused
domain.task(name="i", key=(5,))(plain)  # refused

Submission("right::work", {"path": "a"}, prioritty=5)  # refused
Submission("right::work", {"path": "a"}, retry=3)  # refused
Submission("right::work", ["a"])  # refused
Submission(work)  # refused
Submission("right::work", {"path": "a"}, priority=5)

Scheduler(domain=[domain])  # refused
Scheduler(domains=["right"])  # refused
Scheduler(durability="none")  # refused
Scheduler(domains=[domain], durability="process")
