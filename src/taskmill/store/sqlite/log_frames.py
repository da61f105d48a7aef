"""Checking the frames of a write-ahead log, to find out whether a committed one is missing (SQLite's file format)."""

from __future__ import annotations

import struct

HEADER = 32
FRAME_HEADER = 24
_LITTLE_ENDIAN = 0x377F0682


def is_intact(log: bytes, upto: int) -> bool:
    """True if every frame, up to the one that contains byte ``upto``, is as it was written.

    The checksum of a frame covers everything before it, so one lost frame invalidates all later ones.
    """
    if len(log) < HEADER:
        return False
    magic, _, page, _, *salts, first, second = struct.unpack(">8I", log[:HEADER])
    order = "<" if magic == _LITTLE_ENDIAN else ">"
    if _checksum(order, log[: HEADER - 8], 0, 0) != (first, second):
        return False
    size = FRAME_HEADER + page
    for start in range(HEADER, upto + 1, size):
        frame = log[start : start + size]
        if len(frame) < size:
            return False
        _, _, *its_salts, expected_first, expected_second = struct.unpack(">6I", frame[:FRAME_HEADER])
        first, second = _checksum(order, frame[:8] + frame[FRAME_HEADER:], first, second)
        if its_salts != salts or (first, second) != (expected_first, expected_second):
            return False
    return True


def _checksum(order: str, content: bytes, first: int, second: int) -> tuple[int, int]:
    for one, other in struct.iter_unpack(order + "II", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def first_difference(before: bytes, after: bytes) -> int:
    """Return the offset of the first byte in which two states of a log differ."""
    shorter = min(len(before), len(after))
    low, high = 0, shorter
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
