"""The time zone of the machine is found as the C library finds it: real files and links, in a separate folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

import pytest

from taskmill import ConfigError, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.core.host_zone import host_zone
from taskmill.testing import ManualClock

pytestmark = pytest.mark.one_engine("no store is opened")

BERLIN = ZoneInfo("Europe/Berlin")
DATABASE = next(Path(folder) for folder in TZPATH if (Path(folder) / "Europe" / "Berlin").is_file())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with an empty ``etc`` and a small database of zones."""
    (tmp_path / "etc").mkdir()
    for name in ("Europe/Berlin", "Europe/Paris", "Asia/Tokyo"):
        file = tmp_path / "usr" / "share" / "zoneinfo" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DATABASE / name, file)
    return tmp_path


def link(root: Path, target: str) -> None:
    (root / "etc" / "localtime").symlink_to(target)


def write(root: Path, text: str) -> None:
    (root / "etc" / "timezone").write_text(text)


def copied(root: Path, name: str) -> None:
    shutil.copy(DATABASE / name, root / "etc" / "localtime")


def summer_and_winter(zone: object) -> tuple[timedelta | None, timedelta | None]:
    return (
        datetime(2026, 7, 1, tzinfo=zone).utcoffset(),  # type: ignore[arg-type]
        datetime(2026, 1, 1, tzinfo=zone).utcoffset(),  # type: ignore[arg-type]
    )


# TZ


@pytest.mark.parametrize(
    "said", ["Europe/Berlin", ":Europe/Berlin", f"{DATABASE}/Europe/Berlin", f":{DATABASE}/Europe/Berlin"]
)
def test_the_environment_names_the_zone(said: str, root: Path) -> None:
    link(root, "/usr/share/zoneinfo/Asia/Tokyo")
    assert host_zone({"TZ": said}, root) is BERLIN


@pytest.mark.parametrize("said", ["", ":", "UTC", "Etc/UTC", "UTC0"])
def test_an_empty_environment_variable_is_utc(said: str, root: Path) -> None:
    link(root, "/usr/share/zoneinfo/Asia/Tokyo")
    zone = host_zone({"TZ": said}, root)
    assert summer_and_winter(zone) == (timedelta(), timedelta())


def test_rules_are_a_zone(root: Path) -> None:
    zone = host_zone({"TZ": "CET-1CEST,M3.5.0,M10.5.0/3"}, root)
    at = datetime(2000, 1, 1, tzinfo=UTC)
    while at.year < 2045:
        assert at.astimezone(zone).utcoffset() == at.astimezone(BERLIN).utcoffset()
        at += timedelta(hours=37)
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=zone)
    assert [twice.replace(fold=fold).utcoffset() for fold in (0, 1)] == [timedelta(hours=2), timedelta(hours=1)]


@pytest.mark.parametrize(("said", "hours"), [("<+0330>-3:30", 3.5), ("EST5", -5), ("<-03>3", -3), ("JST-9", 9)])
def test_rules_without_daylight_saving_are_a_zone_too(said: str, hours: float, root: Path) -> None:
    assert summer_and_winter(host_zone({"TZ": said}, root)) == (timedelta(hours=hours),) * 2


def test_a_file_outside_the_database_is_a_zone(root: Path) -> None:
    file = root / "my zone"
    shutil.copy(DATABASE / "Europe" / "Berlin", file)
    assert summer_and_winter(host_zone({"TZ": str(file)}, root)) == summer_and_winter(BERLIN)


@pytest.mark.parametrize(
    "said",
    [
        "Europe/Berlim",
        "Europe",
        "../etc/passwd",
        "/does/not/exist",
        "/",
        "CET-1CEST,M3.5.0",
        "nonsense",
        "ABC",
        "A\0B",
        "CET-1\nUTC0",
    ],
)
def test_a_misspelled_environment_variable_is_refused(said: str, root: Path) -> None:
    with pytest.raises(ConfigError, match="environment variable TZ names an unknown time zone") as raised:
        host_zone({"TZ": said}, root)
    assert repr(said) in str(raised.value)


# The system


@pytest.mark.parametrize(
    "target",
    [
        "/usr/share/zoneinfo/Europe/Berlin",
        "../usr/share/zoneinfo/Europe/Berlin",
        "/usr/share/zoneinfo/posix/Europe/Berlin",
        "/usr/share/zoneinfo/right/Europe/Berlin",
        "/var/db/timezone/zoneinfo/Europe/Berlin",
        "/usr/share/zoneinfo.default/Europe/Berlin",
        "/etc/zoneinfo/Europe/Berlin",
    ],
)
def test_the_link_of_the_system_names_the_zone(target: str, root: Path) -> None:
    link(root, target)
    write(root, "Asia/Tokyo\n")
    assert host_zone({}, root) is BERLIN


def test_links_are_followed_to_the_first_name_that_is_known(root: Path) -> None:
    (root / "etc" / "zone").symlink_to(root / "usr" / "share" / "zoneinfo" / "Local")
    (root / "usr" / "share" / "zoneinfo" / "Local").symlink_to("Europe/Berlin")
    link(root, "zone")
    assert host_zone({}, root) is BERLIN


def test_links_in_a_cycle_lead_nowhere(root: Path) -> None:
    (root / "etc" / "other").symlink_to("localtime")
    link(root, "other")
    assert host_zone({}, root) is UTC


def test_a_link_to_a_zone_that_is_not_known_is_read_as_a_file(root: Path) -> None:
    own = root / "usr" / "share" / "zoneinfo" / "Moon" / "Base"
    own.parent.mkdir()
    shutil.copy(DATABASE / "Asia" / "Tokyo", own)
    link(root, "../usr/share/zoneinfo/Moon/Base")
    assert summer_and_winter(host_zone({}, root)) == (timedelta(hours=9),) * 2


def test_a_link_into_nothing_is_refused(root: Path) -> None:
    link(root, "/usr/share/zoneinfo/Moon/Base")
    with pytest.raises(ConfigError, match="links to the zone 'Moon/Base', which is not known here: install tzdata"):
        host_zone({}, root)


def test_a_copied_file_has_the_name_that_is_written_if_that_is_true(root: Path) -> None:
    copied(root, "Europe/Berlin")
    write(root, "# by hand\n\n  Europe/Berlin  # home\n")
    assert host_zone({}, root) is BERLIN


def test_a_file_wins_over_the_name_that_is_written_if_they_differ(root: Path) -> None:
    copied(root, "Asia/Tokyo")
    write(root, "Etc/UTC\n")
    zone = host_zone({}, root)
    assert summer_and_winter(zone) == (timedelta(hours=9),) * 2
    assert str(zone) == str(root / "etc" / "localtime")


def test_a_file_alone_is_a_zone_with_its_daylight_saving(root: Path) -> None:
    copied(root, "Europe/Berlin")
    assert summer_and_winter(host_zone({}, root)) == summer_and_winter(BERLIN)


def test_a_name_alone_is_believed(root: Path) -> None:
    write(root, "Europe/Berlin\n")
    assert host_zone({}, root) is BERLIN


def test_a_name_that_is_not_known_is_refused_but_not_if_the_file_says_more(root: Path) -> None:
    write(root, "Moon/Base\n")
    with pytest.raises(ConfigError, match="names the zone 'Moon/Base', which is not known here: install tzdata"):
        host_zone({}, root)
    copied(root, "Asia/Tokyo")
    assert summer_and_winter(host_zone({}, root)) == (timedelta(hours=9),) * 2


def test_a_file_that_is_no_zone_is_refused(root: Path) -> None:
    (root / "etc" / "localtime").write_text("Europe/Berlin")
    with pytest.raises(ConfigError, match="cannot be read as a zone: set the environment variable TZ"):
        host_zone({}, root)


def test_a_machine_that_says_nothing_is_in_utc(root: Path) -> None:
    assert host_zone({}, root) is UTC


# This machine


@pytest.mark.skipif(sys.platform == "win32", reason="the C library there has rules of its own")
@pytest.mark.parametrize(
    "said", [None, "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "CET-1CEST,M3.5.0,M10.5.0/3", ""]
)
def test_the_c_library_agrees(said: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TZ"}
    if said is not None:
        environment["TZ"] = said
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "import time\nfor at in range(1767225600, 1798761600, 86400): print(time.localtime(at).tm_gmtoff)",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    zone = host_zone(environment)
    ours = [datetime.fromtimestamp(at, zone).utcoffset() for at in range(1767225600, 1798761600, 86400)]
    assert [str(int(offset.total_seconds())) for offset in ours if offset is not None] == shown


def test_clocks_know_the_zone_of_their_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert SystemClock().zone() == ZoneInfo("Asia/Tokyo")
    berlin = ZoneInfo("Europe/Berlin")
    assert ManualClock(datetime(2030, 1, 1, tzinfo=berlin)).zone() is berlin
    assert ManualClock().zone() is UTC


def test_a_zone_that_cannot_be_told_is_said_when_cron_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Nowhere/At_All")
    Scheduler()
    with pytest.raises(ConfigError, match="TZ"):
        Scheduler(cron=[("tick", "* * * * *", dict, 1)])
