"""The name of a task type: its domain and its task, such as ``sync::transfer``."""

from __future__ import annotations

from functools import lru_cache

SEPARATOR = "::"


def full_name(domain: str, task: str) -> str:
    return f"{domain}{SEPARATOR}{task}"


def is_full_name(type_name: str) -> bool:
    """True if the name has two parts: a domain and a task."""
    parts = type_name.split(SEPARATOR)
    return len(parts) == 2 and all(parts)


@lru_cache(1024)
def domain_of(type_name: str) -> str:
    return type_name.partition(SEPARATOR)[0]
