"""Text in the cells of a terminal: how wide it is, and how it is shortened, padded, wrapped and sorted.

A wide character (``写``, most emoji) takes two cells and a combining mark none: the width of a text is not its length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

ELLIPSIS = "…"

_JOINER = "\u200d"
_EMOJI_FORM = "\ufe0f"
_DIGITS = re.compile(r"(\d+)", re.ASCII)


def width(text: str) -> int:
    """Return the number of cells that a text takes."""
    return len(text) if text.isascii() else sum(cells for _, cells in clusters(text))


def clusters(text: str) -> Iterator[tuple[str, int]]:
    """Split a text into the pieces that must stay together, each with its cells: a character with its marks.

    Also one piece: emoji that are joined, an emoji with its skin tone, and the two letters of a flag.
    """
    piece, cells = "", 0
    for character in text:
        if piece and _continues(piece, character):
            piece += character
            if character == _EMOJI_FORM:
                cells = 2
            continue
        if piece:
            yield piece, cells
        piece, cells = character, _cells(character)
    if piece:
        yield piece, cells


def _continues(piece: str, character: str) -> bool:
    if piece[-1] == _JOINER and piece != _JOINER:
        return True
    if _is_flag_letter(character):
        return len(piece) == 1 and _is_flag_letter(piece)
    is_skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    return is_skin_tone or _cells(character) == 0


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _cells(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    if _is_flag_letter(character):
        return 2
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, most: int) -> str:
    """Return at most ``most`` cells of a text, with the middle left out: ``photos::tra…fer``."""
    if width(text) <= most:
        return text
    if most <= 1:
        return ELLIPSIS[:most]
    end = (most - 1) // 3
    return cut(text, most - 1 - end) + ELLIPSIS + _last(text, end)


def cut(text: str, most: int) -> str:
    """Return the beginning of a text, at most ``most`` cells of it."""
    taken, used = "", 0
    for piece, cells in clusters(text):
        if used + cells > most:
            break
        taken, used = taken + piece, used + cells
    return taken


def cut_off(text: str, most: int) -> str:
    """Return at most ``most`` cells of a text, with an ellipsis if its end is left out."""
    return text if width(text) <= most else cut(text, max(most - 1, 0)) + ELLIPSIS[:most]


def _last(text: str, most: int) -> str:
    taken, used = "", 0
    for piece, cells in reversed(list(clusters(text))):
        if used + cells > most:
            break
        taken, used = piece + taken, used + cells
    return taken


def padded(text: str, cells: int, *, right: bool = False) -> str:
    """Return the text with blanks, aligned left, or right with ``right``."""
    blanks = " " * (cells - width(text))
    return blanks + text if right else text + blanks


def wrapped(text: str, most: int, *, indent: str = "") -> list[str]:
    """Break a text between words into lines of at most ``most`` cells; a longer word is broken.

    Every line after the first of a text begins with ``indent``.
    """
    most = max(most, len(indent) + 2)
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        current, *words = line.lstrip(" ").split(" ")
        current = line[: len(line) - len(line.lstrip(" "))] + current
        for word in words:
            if width(current) + 1 + width(word) > most:
                lines += _broken(current, most, indent)
                current = indent + word
            else:
                current = f"{current} {word}"
        lines += _broken(current, most, indent)
    return lines


def _broken(line: str, most: int, indent: str) -> list[str]:
    """Break a line inside a word that does not fit."""
    pieces: list[str] = []
    while width(line) > most:
        head = cut(line, most)
        pieces.append(head)
        line = indent + line[len(head) :]
    return [*pieces, line]


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names as people do: ``disk2`` before ``disk10``, upper case beside lower case."""
    parts = _DIGITS.split(name.casefold())
    return [(int(part) if part.isdigit() and part.isascii() else -1, part) for part in parts]
