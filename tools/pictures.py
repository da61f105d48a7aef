"""Render the pictures of the page in docs/pictures from the demonstration workload: ``python -m tools.pictures``.

The workload of ``taskmill demo`` runs on a temporary file, slowly enough to be looked at. A Chromium of this machine
opens the page on a loopback port and takes the pictures.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser
from tests.web.browser import Looker, Site, launched

from taskmill import Aging, Group, IoBudget, Priority, Reading, Resources, Submission
from taskmill.cli.demo.workload import BUCKETS, WEIGHTS, Witness, planned, sync, upload
from taskmill.cron import Cron

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
LARGEST = 150_000
"""The most bytes of a picture."""
SLOTS = 12
TASKS = 500
SECONDS = 150.0
WATCHED_SECONDS = 40
"""Seconds that the page watches before the pictures that show measurements."""


class Picture(NamedTuple):
    """A file of docs/pictures and the view on it; ``{waiting}`` is the id of a waiting upload.

    ``weight`` is a group and a weight to try for it in its dialog.
    """

    name: str
    view: str
    width: int = 1280
    height: int = 860
    is_dark: bool = False
    weight: tuple[str, str] | None = None


PICTURES: Sequence[Picture] = (
    Picture("groups", "groups"),
    Picture("what-if", "groups", height=760, weight=(BUCKETS[1], "9")),
    Picture("overview", "overview"),
    Picture("why", "task/{waiting}"),
    Picture("phone", "task/{waiting}", width=390, height=844),
    Picture("tasks", "tasks?filter=state:active&sort=oldest", height=820, is_dark=True),
    Picture("machine", "machine", is_dark=True),
)
"""The pictures, in this order: the first waits until the page has seen enough, and the waiting upload starts soon."""


class Steady:
    """A sampler and a source of pressure whose readings are the same on every machine."""

    name = "cpu"

    def sample(self) -> Reading:
        return Reading(cpu=0.42, disk_read=21e6, disk_write=9e6, net_rx=2e6, net_tx=13e6)

    def pressure(self) -> float:
        return 0.42


def main() -> int:
    logging.getLogger("taskmill").addHandler(logging.NullHandler())
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _site() as site:
        waiting = site.do(_submitted(site))
        with launched() as browser:
            sizes = {picture.name: _taken(browser, site, picture, waiting) for picture in PICTURES}
    for name, size in sizes.items():
        print(f"{name}.png: {size / 1000:.0f} kB")
    return 1 if max(sizes.values()) > LARGEST else 0


def _site() -> Site:
    steady = Steady()
    return Site(
        "tasks.db",
        domains=(sync,),
        max_concurrency=SLOTS,
        groups={name: Group(weight=weight) for name, weight in WEIGHTS.items()},
        aging=Aging(grace=20, interval=15, step=8, ceiling=Priority.HIGH),
        pressure=(steady,),
        resources=Resources(
            sampler=steady, capacity=IoBudget(disk_read="400MB", disk_write="250MB", net_rx="60MB", net_tx="60MB")
        ),
        cron=[Cron("nightly backup", "15 3 * * 1-5", upload_nothing, "10m")],
        state=[Witness()],
        retention=None,
    )


def upload_nothing() -> None:
    """Stand for the work of a cron task that is not due."""


async def _submitted(site: Site) -> int:
    """Submit the plan, and an upload with a deadline that waits behind all others; return its id."""
    pieces = planned(TASKS, SECONDS, SLOTS).pieces
    await site.scheduler.submit_many(_with_budget(piece.submission) for piece in pieces)
    late = upload.options(
        label="2026/album/final-cut.mov",
        group=BUCKETS[1],
        ttl=1800,
        priority=Priority.LOW,
        tags={"tenant": "north"},
    )
    handle = await late.submit(BUCKETS[1], "2026/album/final-cut.mov", 48_000_000, 5.0)
    return handle.id


def _with_budget(submission: Submission) -> Submission:
    """Give an upload the budget that it will send."""
    if submission.type != upload.name:
        return submission
    budget = IoBudget(net_tx=submission.payload["size"] // 2)
    return Submission(submission.type, submission.payload, **{**submission.options, "io": budget})


def _taken(browser: Browser, site: Site, picture: Picture, waiting: int) -> int:
    """Take one picture and return its size in bytes."""
    looker = Looker(
        browser,
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.is_dark else "light",
    )
    page = looker.open(site)
    if picture.name == "groups":
        # The picture over time grows while the page is open.
        page.wait_for_timeout(WATCHED_SECONDS * 1000)
    looker.show(picture.view.format(waiting=waiting))
    page.wait_for_function("() => document.querySelector('.live').dataset.live === 'live'")
    if picture.weight is not None:
        page.get_by_role("button", name=f"Change {picture.weight[0]}", exact=True).click()
        page.get_by_label("Weight").fill(picture.weight[1])
        page.locator(".what-if[aria-busy=true]").wait_for()
        page.locator(".what-if[aria-busy=false] table").wait_for()
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)
    path = FOLDER / f"{picture.name}.png"
    page.screenshot(path=path)
    looker.close()
    return path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
