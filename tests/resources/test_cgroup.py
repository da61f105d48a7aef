"""Limits of control groups, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmill.model.io_budget import IoBudget
from taskmill.resources.cgroup import Cgroup, CpuQuota, IoQuota, MemoryQuota, own_cgroup


def _group(directory: Path, **files: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.type").write_text("domain\n")
    for name, text in files.items():
        (directory / name.replace("_", ".", 1)).write_text(text)
    return directory


def _proc(directory: Path, cgroup: str, mountinfo: str) -> Path:
    directory.mkdir()
    (directory / "cgroup").write_text(cgroup)
    (directory / "mountinfo").write_text(mountinfo)
    return directory


def _mount(root: str, at: Path) -> str:
    shown = str(at).replace(" ", "\\040")
    return f"23 1 0:20 / / rw - ext4 /dev/vda rw\n41 31 0:38 {root} {shown} rw,relatime shared:4 - cgroup2 cgroup2 rw\n"


def test_a_group_without_limits_is_no_limit(tmp_path: Path) -> None:
    group = Cgroup(_group(tmp_path, cpu_max="max 100000\n", memory_max="max\n", io_max=""), tmp_path)
    assert (group.cpu(), group.memory(), group.io()) == (None, None, None)
    bare = Cgroup(tmp_path / "gone", tmp_path)
    assert (bare.cpu(), bare.memory(), bare.io(), bare.pressure_file("cpu")) == (None, None, None, None)


def test_processor_time_is_a_number_of_cores_and_seconds_used(tmp_path: Path) -> None:
    stat = "usage_usec 2500000\nuser_usec 1\nnr_periods 3\n"
    group = Cgroup(_group(tmp_path, cpu_max="150000 100000\n", cpu_stat=stat), tmp_path)
    assert group.cpu() == CpuQuota(1.5, 2.5)


def test_the_tightest_limit_above_binds_with_all_that_is_used_there(tmp_path: Path) -> None:
    outer = _group(tmp_path / "a", cpu_max="100000 100000", cpu_stat="usage_usec 9000000")
    inner = _group(outer / "b", cpu_max="400000 100000", cpu_stat="usage_usec 1000000")
    innermost = _group(inner / "c", cpu_max="max 100000", cpu_stat="usage_usec 500000")
    assert Cgroup(innermost, tmp_path).cpu() == CpuQuota(1.0, 9.0)
    assert Cgroup(innermost, inner).cpu() == CpuQuota(4.0, 1.0)


def test_memory_that_can_be_dropped_is_not_in_use(tmp_path: Path) -> None:
    files = {"memory_max": "1000\n", "memory_current": "900\n", "memory_stat": "anon 100\ninactive_file 300\n"}
    group = Cgroup(_group(tmp_path, **files), tmp_path)
    assert group.memory() == MemoryQuota(1000, 600)


def test_the_memory_limit_that_is_nearest_counts(tmp_path: Path) -> None:
    outer = _group(tmp_path / "a", memory_max="1000", memory_current="950")
    inner = _group(outer / "b", memory_max="500", memory_current="100")
    assert Cgroup(inner, tmp_path).memory() == MemoryQuota(1000, 950)


def test_disk_limits_are_those_of_the_slowest_disk_and_what_was_moved_is_of_all(tmp_path: Path) -> None:
    limits = "8:0 rbps=2000 wbps=max riops=max wiops=120\n8:16 rbps=1000 wbps=700 riops=max wiops=max\n"
    stats = "8:0 rbytes=10 wbytes=20 rios=1 wios=1\n8:16 rbytes=5 wbytes=6\n"
    group = Cgroup(_group(tmp_path, io_max=limits, io_stat=stats), tmp_path)
    assert group.io() == IoQuota(IoBudget(1000, 700), IoBudget(15, 26))


def test_only_reading_may_be_limited(tmp_path: Path) -> None:
    group = Cgroup(_group(tmp_path, io_max="8:0 rbps=2000 wbps=max\n"), tmp_path)
    assert group.io() == IoQuota(IoBudget(2000), IoBudget())


@pytest.mark.parametrize("text", ["", "max", "100000", "0 0", "-1 100000", "１００ 100", "x y", "\xff"])
def test_a_nonsensical_value_is_no_limit(tmp_path: Path, text: str) -> None:
    files = {"cpu_max": text, "cpu_stat": "usage_usec 1", "memory_max": text, "io_max": text}
    group = Cgroup(_group(tmp_path, **files), tmp_path)
    assert (group.cpu(), group.memory(), group.io()) == (None, None, None)


@pytest.mark.parametrize(
    ("cgroup", "root", "expected"),
    [
        ("0::/\n", "/", ""),
        ("0::/user.slice/app\n", "/", "user.slice/app"),
        ("9:cpu:/x\n0::/user.slice/app\n", "/", "user.slice/app"),
        # The host's path; only the container's part of the tree is visible.
        ("0::/docker/abc/work\n", "/docker/abc", "work"),
        # Moved outside the visible tree: the topmost visible group.
        ("0::/../elsewhere\n", "/", None),
    ],
)
def test_our_own_group_is_found(tmp_path: Path, cgroup: str, root: str, expected: str | None) -> None:
    top = tmp_path / "sys fs" / "cgroup"
    for directory in ("user.slice/app", "work"):
        _group(top / directory)
    proc = _proc(tmp_path / "proc", cgroup, _mount(root, top))
    found = own_cgroup(proc)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.directory == top / expected


def test_a_system_without_such_groups_has_none(tmp_path: Path) -> None:
    assert own_cgroup(tmp_path / "nothing") is None
    assert own_cgroup(_proc(tmp_path / "v1", "4:memory:/x\n", "")) is None
    assert (
        own_cgroup(_proc(tmp_path / "unmounted", "0::/\n", "23 1 0:20 / / rw - ext4 /dev/vda rw\nbroken - cgroup2 x"))
        is None
    )


def test_the_pressure_of_our_own_group_counts_unless_it_is_the_whole_machine(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "io.pressure").write_text("some avg10=1.00\n")
    assert Cgroup(top, top).pressure_file("io") is None
    inner = _group(top / "app", io_pressure="some avg10=2.00\n")
    assert Cgroup(inner, top).pressure_file("io") == inner / "io.pressure"
    assert Cgroup(inner, top).pressure_file("memory") is None
