"""``taskmill web``: show a store in a browser, beside the programs that use it or alone.

It dispatches nothing. Only this machine can reach it, unless ``--host`` says otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import webbrowser
from typing import TYPE_CHECKING, Any

from taskmill.cli import output
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import add_file, chosen_file, opened

if TYPE_CHECKING:
    from taskmill import Scheduler
    from taskmill.web import PageServer

TOKEN_VARIABLE = "TASKMILL_WEB_TOKEN"  # noqa: S105 - the name of a variable
HIGHEST_PORT = 65_535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", metavar="N", type=int, help="the port (default: 8040, or a free one if it is taken)")
    parser.add_argument("--open", action="store_true", help="open the page in the default browser")
    parser.add_argument("--read-only", action="store_true", help="refuse every change")
    parser.add_argument(
        "--token", metavar="TEXT", help=f"the token instead of a random one (default: ${TOKEN_VARIABLE})"
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="accept this name in the Host header, besides those of this machine; may be repeated",
    )


def execute(arguments: argparse.Namespace) -> int:
    token = os.environ.get(TOKEN_VARIABLE) if arguments.token is None else arguments.token
    if token == "":
        raise Refusal("--token must not be empty", WRONG)
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise Refusal("--token must be ASCII without spaces, because programs send it in a header", WRONG)
    if arguments.port is not None and not 0 <= arguments.port <= HIGHEST_PORT:
        raise Refusal(f"--port must be from 0 to {HIGHEST_PORT}, got {arguments.port}", WRONG)
    file = chosen_file(arguments.file)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("taskmill.audit").setLevel(logging.INFO)
    try:
        asyncio.run(_serve(arguments, file, token))
    except KeyboardInterrupt:
        # Pressed before the server could take the signal.
        return DONE
    return DONE


async def _serve(arguments: argparse.Namespace, file: str, token: str | None) -> None:
    async with opened(file) as scheduler:
        server = server_of(
            scheduler,
            host=arguments.host,
            port=arguments.port,
            token=token,
            read_only=arguments.read_only,
            allowed_hosts=arguments.allow_host,
        )
        async with server.running():
            if arguments.json:
                output.print_json_line({"address": server.address, "link": server.link})
            else:
                output.say(server.link)
            if arguments.open:
                webbrowser.open(server.link)
            await server.stopped()


def server_of(scheduler: Scheduler, **settings: Any) -> PageServer:
    """Return a server of the page; raise ``Refusal`` if the extra is not installed."""
    try:
        from taskmill.web import page_server
    except ImportError as wrong:
        raise Refusal(str(wrong), WRONG) from None
    return page_server(scheduler, **settings)
