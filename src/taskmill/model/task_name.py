"""Stored names of task types: ``"domain::task"``."""

from __future__ import annotations

from functools import lru_cache

SEPARATOR = "::"


def full_name(domain: str, task: str) -> str:
    return f"{domain}{SEPARATOR}{task}"


@lru_cache(1024)
def domain_of(type_name: str) -> str:
    return type_name.partition(SEPARATOR)[0]
