"""psutil, stalls and control groups of the machine that runs the tests. A test is skipped if the machine lacks them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from taskmill import ConfigError
from taskmill.core.clock import SystemClock
from taskmill.model.machine import HIGHEST_RATE, PressureSource, ResourceSampler
from taskmill.pressure import (
    BatteryPressure,
    CpuPressure,
    DiskPressure,
    MemoryPressure,
    NetworkPressure,
    PsiPressure,
    PsiResource,
)
from taskmill.resources.cgroup import own_cgroup
from taskmill.resources.samplers import PsutilSampler, disk_counts, network_counts, process_io
from taskmill.resources.watch import ResourceWatch

MIB = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="files of Linux")


def _is_on_a_disk(directory: Path) -> bool:
    """True if files in it are stored on a disk that psutil counts, and not in memory."""
    found = [part for part in psutil.disk_partitions(all=True) if directory.is_relative_to(part.mountpoint)]
    kind = max(found, key=lambda part: len(part.mountpoint)).fstype if found else ""
    return kind in ("ext4", "ext3", "xfs", "btrfs", "f2fs") and bool(disk_counts(psutil))


def _write(file: Path, size: int) -> None:
    with file.open("wb") as target:
        target.write(os.urandom(MIB) * (size // MIB))
        target.flush()
        os.fsync(target.fileno())


def test_a_sample_makes_sense_and_sees_work() -> None:
    sampler = PsutilSampler()
    assert isinstance(sampler, ResourceSampler)
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        sum(range(1000))
    reading = sampler.sample()
    # One processor was busy all the time, apart from what the system counts late.
    assert 0.3 / (os.cpu_count() or 1) <= reading.cpu <= 1
    assert all(0 <= rate <= HIGHEST_RATE for rate in reading.rates)
    assert reading.disk_busy is None or 0 <= reading.disk_busy <= 1


async def test_the_watch_works_on_the_real_clock_with_everything_that_is_built_in() -> None:
    sources: list[PressureSource] = [CpuPressure(), MemoryPressure(), DiskPressure(), BatteryPressure()]
    sources.append(NetworkPressure(10**9))
    watch = ResourceWatch(SystemClock(), sampler=PsutilSampler(), sources=sources, bandwidth_limit=1e9)
    await watch.look()
    watch.stop()
    assert set(watch.pressures) == {"cpu", "memory", "disk", "battery", "network", "bandwidth"}
    assert watch.pressure == max(watch.pressures.values())
    assert watch.reading is not None


def test_the_first_sample_needs_no_waiting_by_the_caller() -> None:
    reading = PsutilSampler().sample()
    assert 0 <= reading.cpu <= 1


def test_a_sampler_sees_what_is_written_to_disk(disk_path: Path) -> None:
    if not _is_on_a_disk(disk_path):
        pytest.skip("temporary files are not on a disk that is counted here")
    sampler = PsutilSampler()
    began = time.monotonic()
    _write(disk_path / "file", 32 * MIB)
    reading = sampler.sample()
    assert reading.disk_write * (time.monotonic() - began) >= 24 * MIB
    assert reading.disk_busy is None or reading.disk_busy > 0


def test_networks_are_counted_without_talk_inside_the_machine() -> None:
    assert "lo" not in network_counts(psutil)
    assert all(min(row) >= 0 for row in network_counts(psutil).values())


@pytest.mark.parametrize(
    "source", [CpuPressure, MemoryPressure, DiskPressure, BatteryPressure, lambda: NetworkPressure(10**9)]
)
def test_every_source_says_a_number_from_0_to_1(source: type) -> None:
    made: PressureSource = source()
    assert isinstance(made, PressureSource)
    assert made.name
    assert all(0 <= made.pressure() <= 1 for _ in range(3))


def test_memory_presses_as_psutil_says() -> None:
    group = own_cgroup()
    if group is not None and group.memory() is not None:
        pytest.skip("the tests run in a control group with memory of its own")
    memory = psutil.virtual_memory()
    used = 1 - memory.available / memory.total
    assert MemoryPressure(comfortable=0).pressure() == pytest.approx(used, abs=0.1)


@linux
@pytest.mark.parametrize("resource", ["cpu", "io", "memory"])
def test_the_kernel_tells_its_stalls(resource: PsiResource) -> None:
    try:
        text = Path(f"/proc/pressure/{resource}").read_text(encoding="ascii")
    except OSError as missing:
        with pytest.raises(ConfigError, match="does not report its pressure"):
            PsiPressure(resource)
        pytest.skip(f"this kernel does not report its pressure: {missing}")
    source = PsiPressure(resource)
    assert source.name == f"psi_{resource}"
    assert 0 <= source.pressure() <= 1
    assert text.startswith("some avg10=")


@linux
def test_our_own_control_group_is_read() -> None:
    group = own_cgroup()
    if group is None:
        pytest.skip("there are no control groups of version 2 here")
    assert str(os.getpid()) in (group.directory / "cgroup.procs").read_text().split()
    for quota in (group.cpu(), group.memory(), group.io()):
        assert quota is None or quota[0]
    if group.is_root:
        assert (group.cpu(), group.memory(), group.io()) == (None, None, None)


def test_the_io_of_a_process_is_seen_from_outside(disk_path: Path) -> None:
    if process_io(os.getpid()) is None:
        pytest.skip("this system does not count IO by process")
    program = (
        "import os, sys\n"
        "sys.stdin.readline()\n"
        "f = open(sys.argv[1], 'wb'); f.write(os.urandom(1 << 23)); f.flush(); os.fsync(f.fileno())\n"
        "print('written', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(disk_path / "file")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        before = process_io(worker.pid)
        print(file=worker.stdin, flush=True)
        assert worker.stdout.readline() == "written\n"
        after = process_io(worker.pid)
        print(file=worker.stdin, flush=True)
    assert before is not None
    assert after is not None
    moved = after - before
    if not _is_on_a_disk(disk_path):
        pytest.skip("temporary files are not on a disk that is counted here")
    assert moved.disk_write >= 1 << 23
    assert (moved.net_rx, moved.net_tx) == (0, 0)


def test_a_process_that_is_gone_has_moved_nothing_that_is_known() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert process_io(gone.pid) is None


WITHOUT = """
import sys, importlib, pkgutil
sys.modules["psutil"] = None
import taskmill
names = [m.name for m in pkgutil.walk_packages(taskmill.__path__, "taskmill.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
from taskmill.resources.samplers import PsutilSampler
from taskmill.pressure import BatteryPressure, CpuPressure, DiskPressure, MemoryPressure, NetworkPressure
from taskmill.pressure import Pressure
from taskmill.resources.samplers import process_io
assert Pressure("mine", lambda: 0.5).pressure() == 0.5
sources = (BatteryPressure, CpuPressure, DiskPressure, MemoryPressure, NetworkPressure)
assert process_io(1) is None, "a sampler of your own does without"
for make in (PsutilSampler, *sources):
    try:
        make()
    except taskmill.ConfigError as said:
        print(said)
print(len(names) > 50)
"""


def test_without_psutil_all_but_its_own_works_and_the_rest_says_what_to_install() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *said, enough = ran.stdout.splitlines()
    assert enough == "True"
    what = ["resources=True", "BatteryPressure", "CpuPressure", "DiskPressure", "MemoryPressure", "NetworkPressure"]
    install = 'needs psutil, which is not installed: pip install "taskmill[monitor]"'
    assert said == [f"{name} {install}" for name in what]
