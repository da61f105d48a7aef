"""Noticing that a file was deleted, moved or replaced while it is open.

The system lets a process write to a file that has no name any more. What is stored there is lost when the last process
closes it, and a process that opens the name meanwhile sees another file.
"""

from __future__ import annotations

import os

from taskmill.errors import StoreLost


class Identity:
    """The file that a path names, or that a descriptor has open."""

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        # The program may change its folder; and symbolic links stay as they are.
        self._path = os.path.abspath(path)
        found = os.stat(self._path if descriptor is None else descriptor)
        self._known = (found.st_ino, found.st_dev)

    def is_there(self) -> bool:
        """True if the path still names the same file, or if it cannot be told."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # The process may have dropped its right to look into the folder.
            return True
        return (found.st_ino, found.st_dev) == self._known

    def check(self, what: str) -> None:
        """Raise :class:`StoreLost` if the file is gone."""
        if not self.is_there():
            raise StoreLost(
                f"{what} {self._path} was deleted, moved or replaced while it was open;"
                " nothing more is stored. Put the file in place, then open it again"
            )
