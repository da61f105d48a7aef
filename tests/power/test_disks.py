"""The recorder records every change, and the disks derived from a recording are those that a power cut may leave."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from functools import cached_property
from pathlib import Path

import pytest

from tests.power.disks import SECTOR, WAYS, Disk, Folder, develop, found
from tests.power.recorder import environment
from tests.power.recording import Kind, records

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the recorder is a library for LD_PRELOAD")

CHANCES = 20
OPENED = "import os\nf = os.open('f', os.O_CREAT | os.O_RDWR)\nfolder = os.open('.', os.O_RDONLY)\n"
"""The first lines of the programs below."""


class Recorded:
    """A short program that was recorded in an empty folder."""

    def __init__(self, place: Path, program: str, *, processes: int = 1, fail: str = "", there: Disk | None = None):
        self.folder, self.recording = place / "disk", place / "recording"
        self.folder.mkdir()
        for name, content in (there or {}).items():
            (self.folder / name).write_bytes(content)
        self._start = Folder(self.folder)
        recorded = environment(self.folder.resolve(), self.recording, delay_us=100, fail=fail)
        command = [sys.executable, "-c", OPENED + textwrap.dedent(program)]
        running = [
            subprocess.Popen(command, cwd=self.folder, env=recorded, stderr=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for process in running:
            _, complaint = process.communicate(timeout=60)
            assert process.returncode == 0, complaint

    @cached_property
    def end(self) -> Folder:
        """Return the folder at the end of the recording."""
        for record in records(self.recording):
            self._start.apply(record)
        return self._start

    def disks(self, *ways: str) -> list[Disk]:
        """Return the disks that a cut at the end may leave."""
        return [develop(self.end, way, random.Random(seed)) for way in ways for seed in range(CHANCES)]


def test_a_synced_file_in_a_synced_folder_is_on_every_disk(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "os.write(f, b'a' * 5000); os.fdatasync(f); os.fsync(folder)")
    assert recorded.disks(*WAYS) == [{"f": b"a" * 5000}] * CHANCES * len(WAYS)


def test_unsynced_writes_may_be_lost_kept_or_torn_by_sectors(tmp_path: Path) -> None:
    written = b"".join(bytes([65 + number]) * SECTOR for number in range(20))
    recorded = Recorded(
        tmp_path, f"os.write(f, bytes({len(written)})); os.fsync(f); os.fsync(folder); os.pwrite(f, {written!r}, 0)"
    )
    lost, kept, torn = (recorded.disks(way) for way in ("lost", "kept", "torn"))
    assert {disk["f"] for disk in lost} == {bytes(len(written))}
    assert {disk["f"] for disk in kept} == {written}
    sectors = [[disk["f"][at : at + SECTOR] for at in range(0, len(written), SECTOR)] for disk in torn]
    assert len({tuple(disk) for disk in sectors}) > CHANCES // 2
    for disk in sectors:
        assert all(sector in (bytes(SECTOR), bytes([65 + number]) * SECTOR) for number, sector in enumerate(disk))


def test_a_size_may_grow_without_its_content_and_content_come_without_the_size(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "os.write(f, b'a' * 512); os.fsync(f); os.fsync(folder); os.write(f, b'b' * 1000)")
    assert recorded.disks("grown")[0] == {"f": b"a" * 512 + bytes(1000)}
    assert recorded.disks("short")[0] == {"f": b"a" * 512}


def test_names_count_after_a_sync_of_the_folder(tmp_path: Path) -> None:
    recorded = Recorded(
        tmp_path,
        "os.fsync(f); os.unlink('gone'); os.rename('old', 'new'); os.link('new', 'twin')",
        there={"gone": b"gone", "old": b"moved"},
    )
    assert recorded.disks("lost")[0] == {"gone": b"gone", "old": b"moved"}
    assert recorded.disks("kept")[0] == {"f": b"", "new": b"moved", "twin": b"moved"} == found(recorded.folder)
    names = {tuple(sorted(disk)) for disk in recorded.disks("names")}
    assert len(names) > 5


def test_a_file_that_was_cut_short_may_be_long_and_the_other_way_round(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "os.ftruncate(f, 700)", there={"f": b"a" * 2000})
    assert recorded.disks("lost")[0] == {"f": b"a" * 2000}
    assert recorded.disks("kept")[0] == {"f": b"a" * 700}
    assert recorded.disks("grown")[0] == {"f": b"a" * 700}


def test_a_sync_covers_what_was_written_before_it_began(tmp_path: Path) -> None:
    recorded = Recorded(
        tmp_path,
        """
        import threading
        os.fsync(folder)
        for number in range(200):
            thread = threading.Thread(target=os.fdatasync, args=[f])
            thread.start()
            os.pwrite(f, b'%4d' % number, number * 512)
            thread.join()
        """,
    )
    written, certain = 0, 0
    written_at: dict[int, int] = {}
    for record in records(recorded.recording):
        match record.kind:
            case Kind.WRITE:
                written += 1
            case Kind.SYNC_BEGINS:
                written_at[record.at] = written
            case Kind.SYNC_ENDS:
                certain = written_at[record.first]
            case _:
                pass
    (disk,) = {disk.get("f", b"") for disk in recorded.disks("lost")}
    assert written == 200
    assert [number for number in range(200) if disk[number * 512 :][:4] == b"%4d" % number] == list(range(certain))


def test_after_a_failed_sync_the_next_one_does_not_write_the_pages(tmp_path: Path) -> None:
    recorded = Recorded(
        tmp_path,
        """
        os.fsync(folder)
        def fails():
            try: os.fdatasync(f)
            except OSError as wrong: return wrong.errno
        other = os.dup(os.open('f', os.O_RDWR))
        os.write(f, b'a' * 4096)
        assert fails() == 5
        assert fails() is None
        late = f; f = other
        assert fails() == 5, "each descriptor gets the error once"
        assert fails() is None
        f = late
        os.pwrite(f, b'b' * 4096, 4096)
        assert fails() is None
        """,
        fail="f:1",
    )
    assert recorded.disks("lost")[0] == {"f": bytes(4096) + b"b" * 4096}
    assert recorded.disks("kept")[0] == {"f": b"a" * 4096 + b"b" * 4096}


def test_pages_that_are_written_again_after_a_failed_sync_are_written_by_the_next(tmp_path: Path) -> None:
    recorded = Recorded(
        tmp_path,
        """
        os.fsync(folder)
        os.write(f, b'a' * 8192)
        try: os.fdatasync(f)
        except OSError: pass
        os.pwrite(f, b'b', 0)
        os.fdatasync(f)
        """,
        fail="f:1",
    )
    assert recorded.disks("lost")[0] == {"f": b"b" + b"a" * 4095 + bytes(4096)}


def test_the_order_of_several_threads_and_processes_is_kept(tmp_path: Path) -> None:
    recorded = Recorded(
        tmp_path,
        """
        import random, threading
        def scribble():
            for _ in range(300):
                os.pwrite(f, random.randbytes(random.randrange(1, 2000)), random.randrange(20000))
                if random.random() < 0.05: os.ftruncate(f, random.randrange(20000))
                if random.random() < 0.05: os.fsync(f)
        threads = [threading.Thread(target=scribble) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
        processes=3,
    )
    assert recorded.disks("kept")[0] == found(recorded.folder)


@pytest.mark.parametrize("deed", ["import mmap; os.ftruncate(f, 9); mmap.mmap(f, 9)", "os.mkdir('d')"])
def test_a_call_that_cannot_be_recorded_is_refused(tmp_path: Path, deed: str) -> None:
    recorded = Recorded(tmp_path, deed)
    with pytest.raises(ValueError, match="cannot be recorded"):
        recorded.disks("kept")
