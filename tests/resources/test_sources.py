"""Sources of pressure on simulated machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from taskmill import ConfigError, pressure
from taskmill.pressure import (
    BatteryPressure,
    CpuPressure,
    DiskPressure,
    MemoryPressure,
    NetworkPressure,
    Pressure,
    PsiPressure,
    some_avg10,
)
from taskmill.resources import samplers
from taskmill.resources.cgroup import Cgroup
from taskmill.resources.samplers import disk_counts, link_speed, network_counts
from tests.resources.imagined import ImaginedPsutil, Seconds, SimpleTimes, disk, nic

NOWHERE = Path("/nowhere")
NO_CGROUP = Cgroup(NOWHERE, NOWHERE)


@pytest.fixture
def psutil(monkeypatch: pytest.MonkeyPatch) -> ImaginedPsutil:
    imagined = ImaginedPsutil()
    for module in (samplers, pressure):
        monkeypatch.setattr(module, "psutil_for", lambda what: imagined)
    monkeypatch.setattr(pressure, "disk_counts", lambda psutil: disk_counts(psutil, NOWHERE))
    monkeypatch.setattr(pressure, "network_counts", lambda psutil: network_counts(psutil, NOWHERE))
    monkeypatch.setattr(pressure, "link_speed", lambda psutil: link_speed(psutil, NOWHERE))
    return imagined


def test_any_signal_is_a_source_in_one_line() -> None:
    backlog = [1, 2, 3]
    source = Pressure("backlog", lambda: len(backlog) / 10)
    assert (source.name, source.pressure()) == ("backlog", 0.3)


def test_processors_are_smoothed(psutil: ImaginedPsutil) -> None:
    seconds = Seconds()
    source = CpuPressure(cgroup=NO_CGROUP, monotonic=seconds)
    said = []
    for user in (1.0, 1.0, 2.0):
        seconds.pass_by(1)
        psutil.cpu = SimpleTimes(user=user, idle=seconds.now - 100 - user)
        said.append(source.pressure())
    assert said == pytest.approx([1.0, 0.7, 0.79])


def test_memory_is_no_trouble_while_half_of_it_is_free(psutil: ImaginedPsutil) -> None:
    source = MemoryPressure(cgroup=NO_CGROUP)
    said = []
    for available in (100, 50, 25, 0):
        psutil.memory = SimpleNamespace(total=100, available=available)
        said.append(source.pressure())
    assert said == [0, 0, 0.5, 1]
    assert MemoryPressure(comfortable=0, cgroup=NO_CGROUP).pressure() == 1


def test_in_a_limited_container_its_own_memory_counts(psutil: ImaginedPsutil, tmp_path: Path) -> None:
    psutil.memory = SimpleNamespace(total=1000, available=1000)
    (tmp_path / "memory.max").write_text("100\n")
    (tmp_path / "memory.current").write_text("75\n")
    assert MemoryPressure(cgroup=Cgroup(tmp_path, tmp_path)).pressure() == 0.5
    (tmp_path / "memory.max").write_text(f"{10**18}\n")
    assert MemoryPressure(cgroup=Cgroup(tmp_path, tmp_path)).pressure() == 0


def test_the_busiest_disk_counts(psutil: ImaginedPsutil) -> None:
    seconds = Seconds()
    psutil.disks = {"sda": disk(0, 0, 0), "sdb": disk(0, 0, 0)}
    source = DiskPressure(monotonic=seconds)
    seconds.pass_by(1)
    psutil.disks = {"sda": disk(0, 0, 100), "sdb": disk(0, 0, 600)}
    assert source.pressure() == pytest.approx(0.6)


@pytest.mark.parametrize(("limit", "rate"), [("1MB", 1_000_000), ("1.5 KiB", 1536), (1000, 1000), (0.5, 0.5)])
def test_the_limit_of_a_network_is_a_number_of_bytes_or_a_text(
    psutil: ImaginedPsutil, limit: str | float, rate: float
) -> None:
    assert NetworkPressure(limit).limit == rate


def test_a_network_is_measured_by_its_limit_or_by_its_links(psutil: ImaginedPsutil) -> None:
    seconds = Seconds()
    psutil.nics = {"eth0": nic(0, 0)}
    psutil.links = {"eth0": SimpleNamespace(isup=True, speed=8)}
    given, found = NetworkPressure(2000, monotonic=seconds), NetworkPressure(monotonic=seconds)
    assert (given.limit, found.limit) == (2000, 1_000_000)
    seconds.pass_by(1)
    psutil.nics = {"eth0": nic(300, 200)}
    assert (given.pressure(), found.pressure()) == (0.25, 0.0005)


@pytest.mark.parametrize(
    ("battery", "pressure"),
    [
        (None, 0),
        (SimpleNamespace(percent=30, power_plugged=True), 0),
        (SimpleNamespace(percent=30, power_plugged=None), 0),
        (SimpleNamespace(percent=30, power_plugged=False), 0.7),
        (SimpleNamespace(percent=100, power_plugged=False), 0),
        (SimpleNamespace(percent=120, power_plugged=False), 0),
    ],
)
def test_a_battery_presses_by_what_it_lacks_while_it_is_used(
    psutil: ImaginedPsutil, battery: object, pressure: float
) -> None:
    psutil.battery = battery
    assert BatteryPressure().pressure() == pytest.approx(pressure)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pressure("", lambda: 0.0), "name must be a text that is not empty"),
        (lambda: Pressure(5, lambda: 0.0), "name must be a text"),  # type: ignore[arg-type]
        (lambda: Pressure("x", 0.5), "function must be callable"),  # type: ignore[arg-type]
        (lambda: MemoryPressure(comfortable=1), "comfortable must be a number from 0 to less than 1"),
        (lambda: MemoryPressure(comfortable="x"), "comfortable must be a number"),  # type: ignore[arg-type]
        (NetworkPressure, "no link reports its speed: give NetworkPressure a limit"),
        (lambda: NetworkPressure(0), "limit must be bytes per second"),
        (lambda: NetworkPressure(True), "limit must be bytes per second"),
        (lambda: NetworkPressure([1]), "limit must be bytes per second"),  # type: ignore[arg-type]
        (lambda: NetworkPressure("0MB"), "limit must be bytes per second"),
        (lambda: NetworkPressure("1M"), "limit is written as 500kB, 64MB or 1GiB, got '1M'"),
        (lambda: PsiPressure("disk"), "resource must be one of 'cpu', 'io' and 'memory', got 'disk'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_refused_by_name(psutil: ImaginedPsutil, build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_stalls_are_read_as_the_kernel_writes_them() -> None:
    assert some_avg10("some avg10=75.39 avg60=79.15 avg300=67.46 total=4206997406\nfull avg10=0.00\n") == 0.7539
    assert some_avg10("full avg10=50.00\nsome avg10=0.00 total=1\n") == 0
    for text in ("", "full avg10=1.00\n", "some avg60=1.00\n", "some avg10=x\n"):
        with pytest.raises(ValueError, match=r"some avg10|could not convert"):
            some_avg10(text)


def test_stalls_of_our_own_group_count_where_there_is_one(tmp_path: Path) -> None:
    system, group = tmp_path / "pressure", tmp_path / "top" / "app"
    for directory, text in ((system, "some avg10=10.00\n"), (group, "some avg10=20.00\n")):
        directory.mkdir(parents=True)
        (directory / ("io" if directory is system else "io.pressure")).write_text(text)
    (group / "cgroup.type").write_text("domain\n")
    inside = PsiPressure("io", system=system, cgroup=Cgroup(group, tmp_path / "top"))
    outside = PsiPressure("io", system=system, cgroup=NO_CGROUP)
    assert (inside.name, inside.pressure(), outside.pressure()) == ("psi_io", 0.2, 0.1)


def test_a_kernel_that_does_not_tell_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not report its pressure: .*io cannot be read.*CONFIG_PSI.*psi=1"):
        PsiPressure("io", system=tmp_path, cgroup=NO_CGROUP)
