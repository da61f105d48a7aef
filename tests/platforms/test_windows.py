"""Features that Windows lacks are refused with an error that says what to do instead."""

from __future__ import annotations

import sys
from zoneinfo import ZoneInfo

import pytest

from taskmill import ConfigError, Domain, Scheduler
from taskmill.core.host_zone import host_zone


def resize() -> None:
    """Do nothing; a worker process could import it."""


@pytest.fixture
def _windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


@pytest.mark.usefixtures("_windows")
def test_a_scheduler_refuses_handlers_that_run_in_a_process() -> None:
    domain = Domain("photos")
    domain.task(run_in="process")(resize)
    with pytest.raises(ConfigError, match=r'photos::resize: run_in="process" needs Linux or macOS .* with def'):
        Scheduler(domains=[domain])


@pytest.mark.usefixtures("_windows")
def test_a_scheduler_takes_all_other_handlers() -> None:
    domain = Domain("photos")
    domain.task(resize)
    Scheduler(domains=[domain])


@pytest.mark.usefixtures("_windows")
def test_the_zone_of_the_host_is_asked_for_and_taken_from_the_environment() -> None:
    with pytest.raises(ConfigError, match="environment variable TZ"):
        host_zone({})
    assert host_zone({"TZ": "Europe/Berlin"}) == ZoneInfo("Europe/Berlin")
