"""Detecting that a file was deleted, moved or replaced while it is open.

The operating system lets a process write to a file that no longer has a name. Such data is lost when the last process
closes the file, and a process that opens the path in the meantime sees another file.
"""

from __future__ import annotations

import os

from taskmill.errors import StoreLost


class Identity:
    """The file that a path names, or that a descriptor has open."""

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        # Absolute, because the program may change its working directory. Symbolic links are not resolved: the check
        # is about the path that other processes open.
        self._path = os.path.abspath(path)
        found = os.stat(self._path if descriptor is None else descriptor)
        self._known = (found.st_ino, found.st_dev)

    def is_there(self) -> bool:
        """True if the path still names the same file, or if that cannot be determined."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # The process may have dropped its permission to read the folder.
            return True
        return (found.st_ino, found.st_dev) == self._known

    def check(self, what: str) -> None:
        """Raise :class:`StoreLost` if the path no longer names the same file; ``what`` names it in the message."""
        if not self.is_there():
            raise StoreLost(
                f"{what} {self._path} was deleted, moved or replaced while it was open;"
                " nothing more is stored. Put the file back, then open it again"
            )
