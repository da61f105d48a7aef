"""One word per thing: the glossary explains the words that names are made of, and a class name has one meaning."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.architecture.sources import ROOT, package_sources

GLOSSARY = ROOT / "docs" / "glossary.md"
ORDINARY = Path(__file__).with_name("ordinary_words.txt")
"""Words that need no explanation: plain English, and terms that every Python programmer knows."""

SAME_ON_PURPOSE = {
    # The blocking interface has the names of the asynchronous one.
    *("Scheduler", "Handle", "GroupControl", "DomainControl"),
    # Each engine has its own.
    *("Session", "Writer"),
    # Public: an error that callers see, and an event that listeners see.
    "TaskFailed",
}

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z]+|[A-Z]+|[a-z]+")
_ENDINGS = ("s", "es", "ed", "d", "ing", "r", "er", "or")


def explained() -> list[str]:
    """Return the terms of the glossary, in its order."""
    return re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)


def class_names() -> dict[str, set[str]]:
    """Return the modules that define each class."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for source in package_sources():
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                found[node.name].add(source.module)
    return found


def words_of_names() -> dict[str, str]:
    """Return the words in the names of modules and classes, each with one such name."""
    names = {*class_names(), *(part for source in package_sources() for part in source.module.split("."))}
    return {word.lower(): name for name in sorted(names) for word in _WORD.findall(name)}


def _stems(word: str) -> set[str]:
    """Return the possible stems of a word: ``dependencies`` has ``dependency``, ``executors`` has ``execute``."""
    stems = {word} if not word.endswith("ies") else {word, word.removesuffix("ies") + "y"}
    for _ in range(2):
        for ending in _ENDINGS:
            for bare in [stem.removesuffix(ending) for stem in stems if stem.endswith(ending)]:
                stems |= {bare, bare + "e", bare.removesuffix(bare[-1:])}
    return stems - {""}


def test_every_word_in_a_name_is_ordinary_or_explained() -> None:
    known = set(ORDINARY.read_text(encoding="utf-8").split())
    known |= {word.lower() for term in explained() for word in re.findall(r"\w+", term)}
    strange = {word: name for word, name in words_of_names().items() if not _stems(word) & known}
    assert strange == {}, "explain these words in docs/glossary.md, or use ordinary ones"


def test_the_list_of_ordinary_words_has_no_term_and_no_leftover() -> None:
    ordinary = ORDINARY.read_text(encoding="utf-8").split()
    terms = {term.lower() for term in explained()}
    assert ordinary == sorted(set(ordinary))
    assert terms.isdisjoint(ordinary), "a word is either ordinary or explained"
    used = {stem for word in words_of_names() for stem in _stems(word)}
    assert set(ordinary) <= used, "remove words that no name uses"


def test_the_glossary_is_sorted_and_explains_a_term_once() -> None:
    terms = [term.lower() for term in explained()]
    assert terms == sorted(set(terms))


def test_a_class_name_means_one_thing() -> None:
    twice = {name: modules for name, modules in class_names().items() if len(modules) > 1}
    public = {name: modules for name, modules in twice.items() if not name.startswith("_")}
    assert public.keys() == SAME_ON_PURPOSE, public
