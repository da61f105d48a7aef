"""A handler that runs in a process and asks for state, for ``test_provided_state``."""

from __future__ import annotations

from taskmill import Context, Domain, Retry


class Service:
    pass


domain = Domain("process_state", retry=Retry.none())


@domain.task(run_in="process")
def ask(ctx: Context) -> None:
    ctx.state(Service)
