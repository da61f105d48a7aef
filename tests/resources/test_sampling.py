"""Counters as rates, and the sampler that uses them, on simulated machines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.machine import Reading
from taskmill.resources import samplers
from taskmill.resources.cgroup import Cgroup
from taskmill.resources.samplers import (
    SHORTEST,
    Counts,
    DeviceRates,
    PsutilSampler,
    disk_counts,
    is_disk,
    link_speed,
    network_counts,
)
from tests.resources.imagined import ImaginedPsutil, Seconds, SimpleTimes, disk, nic


@pytest.fixture
def psutil(monkeypatch: pytest.MonkeyPatch) -> ImaginedPsutil:
    imagined = ImaginedPsutil()
    monkeypatch.setattr(samplers, "psutil_for", lambda what: imagined)
    monkeypatch.setattr(samplers, "disk_counts", lambda psutil: disk_counts(psutil, Path("/nowhere")))
    monkeypatch.setattr(samplers, "network_counts", lambda psutil: network_counts(psutil, Path("/nowhere")))
    return imagined


def test_rates_are_what_was_counted_over_the_time_that_passed() -> None:
    seconds, counts = Seconds(), dict[str, tuple[float, ...]](a=(10, 20), b=(0, 0))
    counters = DeviceRates(lambda: dict(counts), seconds)
    seconds.pass_by(2)
    counts |= {"a": (30, 20), "b": (1, 4)}
    assert counters.rates() == {"a": (10, 0), "b": (0.5, 2)}


def test_a_call_that_is_too_soon_waits_once_and_later_ones_get_the_last_rates() -> None:
    seconds, counts, slept = Seconds(), dict[str, tuple[float, ...]](a=(0,)), list[float]()

    def sleep(span: float) -> None:
        slept.append(span)
        seconds.pass_by(span)
        counts["a"] = (1,)

    counters = DeviceRates(lambda: dict(counts), seconds, sleep)
    assert counters.rates()["a"] == pytest.approx([1 / SHORTEST])
    counts["a"] = (1000,)
    assert counters.rates()["a"] == pytest.approx([1 / SHORTEST])
    assert slept == [SHORTEST]


def test_a_device_that_comes_goes_or_counts_anew_is_no_burst() -> None:
    seconds, counts = Seconds(), dict[str, tuple[float, ...]](a=(100,), b=(5,))
    counters = DeviceRates(lambda: dict(counts), seconds)
    steps: list[tuple[Counts, Counts]] = [
        ({"a": (110.0,), "new": (10.0**12,)}, {"a": (10,)}),
        ({"a": (3.0,), "new": (10.0**12 + 7,)}, {"new": (7,)}),
        ({"a": (5.0,)}, {"a": (2,)}),
        ({}, {}),
    ]
    for now, expected in steps:
        counts.clear()
        counts.update(now)
        seconds.pass_by(1)
        assert counters.rates() == expected


def test_a_sample_tells_all_five_numbers_and_how_busy_the_disk_was(psutil: ImaginedPsutil) -> None:
    seconds = Seconds()
    psutil.cpu = SimpleTimes(user=10.0, system=5.0, idle=100.0, iowait=5.0, guest=2.0)
    psutil.disks = {"sda": disk(0, 0, 0), "sdb": disk(0, 0, 0)}
    psutil.nics = {"lo": nic(0, 0), "eth0": nic(0, 0)}
    sampler = PsutilSampler(monotonic=seconds, cgroup=Cgroup(Path("/nowhere"), Path("/nowhere")))
    psutil.cpu = SimpleTimes(user=11.0, system=6.0, idle=105.0, iowait=6.0, guest=3.0)
    psutil.disks = {"sda": disk(2000, 100, 500), "sdb": disk(2000, 100, 1500)}
    psutil.nics = {"lo": nic(10**9, 10**9), "eth0": nic(300, 40)}
    seconds.pass_by(2)
    # Of 8 seconds of CPU time 2 were work; the second of a guest is already included in that of users.
    assert sampler.sample() == Reading(0.25, 2000, 100, 150, 20, 0.75)
    assert sampler.bounds == NO_IO


def test_a_machine_that_counts_nothing_is_idle(psutil: ImaginedPsutil) -> None:
    seconds = Seconds()
    sampler = PsutilSampler(monotonic=seconds, cgroup=Cgroup(Path("/nowhere"), Path("/nowhere")))
    seconds.pass_by(1)
    assert sampler.sample() == Reading()


def test_in_a_limited_container_the_limits_are_the_machine(psutil: ImaginedPsutil, tmp_path: Path) -> None:
    def write(used_usec: int, read: int) -> None:
        (tmp_path / "cpu.stat").write_text(f"usage_usec {used_usec}\n")
        (tmp_path / "io.stat").write_text(f"8:0 rbytes={read} wbytes=0\n")

    seconds = Seconds()
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    (tmp_path / "io.max").write_text("8:0 rbps=5000 wbps=max\n")
    write(0, 0)
    psutil.disks = {"sda": disk(0, 0, 0)}
    sampler = PsutilSampler(monotonic=seconds, cgroup=Cgroup(tmp_path, tmp_path))
    seconds.pass_by(2)
    write(1_000_000, 8000)
    psutil.disks = {"sda": disk(10**9, 10**9, 2000)}
    psutil.cpu = SimpleTimes(user=64.0, idle=64.0)
    assert sampler.sample() == Reading(0.25, 4000, 0, 0, 0, None)
    assert sampler.bounds == IoBudget(disk_read=5000)


def test_only_disks_of_their_own_count(tmp_path: Path) -> None:
    for name in ("sda", "nvme0n1", "dm-0", "loop0", "zram0", "cciss!c0d0"):
        (tmp_path / name / "slaves").mkdir(parents=True)
    (tmp_path / "dm-0" / "slaves" / "sda2").mkdir()
    names = ["sda", "sda1", "nvme0n1", "nvme0n1p1", "dm-0", "loop0", "zram0", "cciss/c0d0"]
    assert [name for name in names if is_disk(name, tmp_path)] == ["sda", "nvme0n1", "cciss/c0d0"]
    assert is_disk("PhysicalDrive0", tmp_path / "not linux")


def test_without_a_counter_of_time_at_work_that_of_requests_is_taken() -> None:
    psutil: Any = ImaginedPsutil()
    psutil.disks = {"disk0": SimpleNamespace(read_bytes=1, write_bytes=2, read_time=3, write_time=4)}
    assert disk_counts(psutil, Path("/nowhere")) == {"disk0": (1, 2, 7)}


def test_bridges_do_not_count_twice_unless_there_is_nothing_else(tmp_path: Path) -> None:
    psutil: Any = ImaginedPsutil()
    psutil.nics = {"lo": nic(1, 1), "eth0": nic(2, 2), "docker0": nic(3, 3)}
    (tmp_path / "eth0" / "device").mkdir(parents=True)
    assert network_counts(psutil, tmp_path) == {"eth0": (2, 2)}
    assert network_counts(psutil, tmp_path / "container") == {"eth0": (2, 2), "docker0": (3, 3)}


def test_the_speed_of_links_is_that_of_those_that_are_up_and_say_it(tmp_path: Path) -> None:
    psutil: Any = ImaginedPsutil()
    assert link_speed(psutil, tmp_path) is None
    psutil.links = {
        "lo": SimpleNamespace(isup=True, speed=10_000),
        "eth0": SimpleNamespace(isup=True, speed=1000),
        "eth1": SimpleNamespace(isup=False, speed=1000),
        "tun0": SimpleNamespace(isup=True, speed=-1),
    }
    assert link_speed(psutil, tmp_path) == 125_000_000
