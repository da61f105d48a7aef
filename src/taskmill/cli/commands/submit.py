"""``taskmill submit``: store a task of a registered type; with ``--wait``, wait for its end."""

from __future__ import annotations

import argparse
import asyncio
import os
from datetime import timedelta
from typing import Any

from taskmill import (
    Ending,
    Handle,
    HistoryRecord,
    IoBudget,
    OnDependencyFailure,
    OnDuplicate,
    Projection,
    Retry,
    Scheduler,
    Submission,
    TtlFrom,
)
from taskmill.cli import output, quantities, text
from taskmill.cli.arguments import payload_from
from taskmill.cli.filters import tags_from
from taskmill.cli.output import DONE, INTERRUPTED, REFUSED, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, dispatcher_of, opened

DURATIONS = {"ttl": "ttl", "attempt_timeout": "timeout", "run_after": "run_after", "every": "every"}
"""The flags that are durations, and the options they are for."""
_FLAGS = {"tags": "--tag", **{name: f"--{name}" for name in ("key", "group", "label", "io", "priority")}}
"""The flags for the options that a task type may compute."""
PLAIN = ("key", "group", "label", "ttl_from", "on_duplicate", "on_dependency_failure", "max_runs", "fail_fast")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "taskmill submit [-h] [FILE] TYPE [NAME=VALUE ...] [--json-args OBJECT]\n"
        "                       [options of the task] [--wait [--timeout D] | --dry-run]\n"
        "                       [--json]"
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE TYPE NAME=VALUE",
        help=f"the database (may be left out when ${VARIABLE} is set), a task type such as sync::transfer,"
        " and the arguments of its handler",
    )
    parser.add_argument("--json-args", metavar="OBJECT", help='arguments as JSON, such as {"path": "a.jpg"}')
    parser.add_argument("--dry-run", action="store_true", help="say what would happen to the task, and store nothing")
    waiting = parser.add_argument_group("waiting")
    waiting.add_argument("--wait", action="store_true", help="wait until the task has ended, and print its result")
    waiting.add_argument("--timeout", metavar="DURATION", help="stop waiting after this; the task continues")
    _add_options(
        parser.add_argument_group(
            "options of the task", "Others have the defaults of the task type, unless its program computes them."
        )
    )


def _add_options(of_task: argparse._ArgumentGroup) -> None:
    of_task.add_argument("--priority", metavar="P", help="0 (most urgent) to 255, or a name such as high")
    of_task.add_argument("--group", metavar="NAME", help="a group; '' for none")
    of_task.add_argument("--key", metavar="KEY", help="at most one active task of the type may have this key")
    of_task.add_argument("--on-duplicate", choices=[*map(str, OnDuplicate)], help="what to do if the key is taken")
    of_task.add_argument("--label", metavar="TEXT", help="a name for people")
    of_task.add_argument("--tag", metavar="K=V", action="append", default=[], help="a tag; may be repeated")
    of_task.add_argument("--run-after", metavar="DURATION", help="do not start before this delay has passed")
    of_task.add_argument("--run-at", metavar="INSTANT", help="do not start before this instant: 2030-01-31T18:30")
    of_task.add_argument("--ttl", metavar="DURATION", help="expire if the task has not started within this time")
    of_task.add_argument("--ttl-from", choices=[*map(str, TtlFrom)], help="when the time of --ttl begins")
    of_task.add_argument("--attempt-timeout", metavar="DURATION", help="an attempt that takes longer has failed")
    of_task.add_argument("--retry", metavar="N", type=int, help="retries after the first attempt")
    of_task.add_argument("--retry-delay", metavar="DURATION", help="with --retry: the delay before each retry")
    of_task.add_argument(
        "--retry-maximum", metavar="DURATION", help="with --retry-delay: the delay doubles each time, up to this"
    )
    of_task.add_argument(
        "--depends-on", metavar="ID", type=int, action="append", default=[], help="a task to wait for; may be repeated"
    )
    of_task.add_argument(
        "--on-dependency-failure", choices=[*map(str, OnDependencyFailure)], help="what to do if that task fails"
    )
    of_task.add_argument("--every", metavar="DURATION", help="repeat the task at this interval")
    of_task.add_argument("--max-runs", metavar="N", type=int, help="with --every: the number of runs")
    of_task.add_argument(
        "--io", metavar="AXIS=SIZE", action="append", default=[], help="bytes to move, such as net_tx=64MB"
    )
    of_task.add_argument("--fail-fast", action=argparse.BooleanOptionalAction, help="fail with the first child")


def execute(arguments: argparse.Namespace) -> int:
    file, type, words = _split(arguments.words)
    limit = None
    if arguments.timeout is not None:
        if not arguments.wait:
            raise Refusal("--timeout needs --wait", WRONG)
        limit = quantities.duration(arguments.timeout, "--timeout")
    if arguments.dry_run and arguments.wait:
        raise Refusal("--dry-run stores no task that --wait could wait for; give one of them", WRONG)
    options = _options(arguments)
    known: list[int] = []
    try:
        return asyncio.run(_submit(chosen_file(file), type, words, options, arguments, limit, known))
    except KeyboardInterrupt:
        for id in known:
            output.complain(f"task {id} is stored and continues; see `taskmill show`")
        return INTERRUPTED


def _split(words: list[str]) -> tuple[str | None, str, list[str]]:
    """Split FILE, TYPE and arguments. The name of a task type has ``::``, and the address of a server ``://``."""
    if _is_type(words[0]) and os.environ.get(VARIABLE):
        return None, words[0], words[1:]
    if len(words) < 2 or not _is_type(words[1]):
        raise Refusal("give the database and a task type such as sync::transfer, then NAME=VALUE", WRONG)
    return words[0], words[1], words[2:]


def _is_type(word: str) -> bool:
    return "::" in word and "://" not in word and "=" not in word.partition("::")[0]


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    given = vars(arguments)
    options: dict[str, Any] = {name: given[name] for name in PLAIN if given[name] is not None}
    for name, option in DURATIONS.items():
        if given[name] is not None:
            options[option] = quantities.duration(given[name], f"--{name.replace('_', '-')}")
    if arguments.priority is not None:
        options["priority"] = quantities.priority(arguments.priority)
    if arguments.run_at is not None:
        options["run_at"] = quantities.instant(arguments.run_at, "--run-at")
    if arguments.tag:
        options["tags"] = tags_from(arguments.tag)
    if arguments.depends_on:
        options["depends_on"] = arguments.depends_on
    if (retry := _retry(arguments)) is not None:
        options["retry"] = retry
    if arguments.io:
        options["io"] = IoBudget(**_budget(arguments.io))
    return options


def _retry(arguments: argparse.Namespace) -> Retry | None:
    if arguments.retry is None:
        if arguments.retry_delay is not None or arguments.retry_maximum is not None:
            raise Refusal("--retry-delay and --retry-maximum need --retry", WRONG)
        return None
    if arguments.retry_maximum is None:
        return Retry.constant(arguments.retry, quantities.duration(arguments.retry_delay or "0", "--retry-delay"))
    if arguments.retry_delay is None:
        raise Refusal("--retry-maximum needs --retry-delay", WRONG)
    maximum = quantities.duration(arguments.retry_maximum, "--retry-maximum")
    return Retry.exponential(arguments.retry, quantities.duration(arguments.retry_delay, "--retry-delay"), maximum)


def _budget(given: list[str]) -> dict[str, Any]:
    budget: dict[str, Any] = {}
    for word in given:
        axis, equals, size = word.partition("=")
        if not equals or axis not in ("disk_read", "disk_write", "net_rx", "net_tx"):
            raise Refusal(f"--io needs disk_read, disk_write, net_rx or net_tx=SIZE, got {word!r}", WRONG)
        budget[axis] = size
    return budget


async def _submit(
    file: str,
    type: str,
    words: list[str],
    options: dict[str, Any],
    arguments: argparse.Namespace,
    limit: timedelta | None,
    known: list[int],
) -> int:
    async with opened(file) as scheduler:
        types = await scheduler.task_types()
        if type not in types:
            names = ", ".join(types) or "none"
            raise Refusal(f"no program has registered {type} in this store; registered are: {names}", WRONG)
        payload = payload_from(types[type], words, arguments.json_args)
        submission = Submission(type, payload, **options)
        for option in types[type].computes:
            if option not in options:
                output.complain(
                    f"{type} computes its {option} from the arguments, which only its program can do;"
                    f" this task has the default, unless you give {_FLAGS[option]}"
                )
        if arguments.dry_run:
            return _print_projection(await scheduler.dry_run([submission]), is_json=arguments.json)
        handle = await scheduler.submit(submission)
        known.append(handle.id)
        if arguments.wait:
            return await _wait(scheduler, handle, limit, is_json=arguments.json)
        dispatcher = await dispatcher_of(scheduler)
    if arguments.json:
        output.print_json({"id": handle.id, "kind": handle.kind, "replaced_id": handle.replaced_id})
        return DONE
    output.say(_stored(handle))
    if dispatcher is None:
        output.say("nothing dispatches this store now; tasks start with the next dispatcher")
    return DONE


_WOULD = {
    "inserted": "the task would be stored",
    "duplicate": "an active task has this key already; nothing would be stored",
    "upgraded": "an active task has this key already; it would become more urgent",
    "requeued": "a running task has this key; it would run once more, with these arguments",
    "superseded": "the task would be stored, and replace the one that has this key",
}


def _print_projection(projection: Projection, *, is_json: bool) -> int:
    (outcome,) = projection.outcomes
    if is_json:
        output.print_json(projection)
    elif outcome != "rejected":
        output.say(_WOULD[outcome])
    if outcome != "rejected":
        return DONE
    output.complain(f"the task would be refused: {projection.errors[0]}")
    return REFUSED


def _stored(handle: Handle[Any]) -> str:
    match handle.kind:
        case "duplicate":
            return f"task {handle.id} has this key already; nothing was stored"
        case "upgraded":
            return f"task {handle.id} has this key already; it is more urgent now"
        case "requeued":
            return f"task {handle.id} has this key and runs; it will run once more, with these arguments"
        case "superseded":
            return f"task {handle.id} is stored, and replaces task {handle.replaced_id}"
        case _:
            return f"task {handle.id} is stored"


async def _wait(scheduler: Scheduler, handle: Handle[Any], limit: timedelta | None, *, is_json: bool) -> int:
    try:
        record: HistoryRecord = await scheduler.wait(handle.id, limit)
    except TimeoutError:
        waited = text.duration(limit or 0)
        raise Refusal(
            f"task {handle.id} has not ended after {waited}; it continues, see `taskmill watch`",
            REFUSED,
        ) from None
    if is_json:
        output.print_json(record)
    elif record.ending is Ending.COMPLETED:
        output.say(text.compact(record.result))
    if record.ending is Ending.COMPLETED:
        return DONE
    why = f": {text.first_line(record.error)}" if record.error else ""
    output.complain(f"task {handle.id} {text.ending(record)}{why}")
    return REFUSED
