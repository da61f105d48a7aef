"""The source files of the package, each read and parsed once."""

from __future__ import annotations

import ast
from functools import cache, cached_property
from pathlib import Path

import taskmill

PACKAGE = Path(taskmill.__file__).parent
ROOT = Path(__file__).parents[2]


class Source:
    """One Python file: its text, its syntax tree and every node of the tree."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.name = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8")

    @property
    def module(self) -> str:
        """Return the dotted name: ``taskmill.store.sqlite.rows``."""
        parts = Path(self.name).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


@cache
def package_sources() -> list[Source]:
    """Return the files of ``taskmill``."""
    return [Source(path, PACKAGE.parent) for path in sorted(PACKAGE.rglob("*.py"))]
