"""What is drawn again and again in one place of the terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live


class Redrawn:
    """A picture that lives as long as its ``with``. A ``screen`` has the whole terminal, and leaves it as it was."""

    def __init__(self, console: Console | None = None, *, screen: bool) -> None:
        self._live = Live(
            console=console, screen=screen, auto_refresh=False, redirect_stdout=screen, redirect_stderr=False
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
