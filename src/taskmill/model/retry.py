"""Retry policies as values; :mod:`taskmill.policy.retry` applies them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from taskmill.errors import ConfigError
from taskmill.model.arguments import check_arguments, check_settings
from taskmill.model.durations import Duration, milliseconds


@check_settings
@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after which delays, a failed task is retried.

    Create one with :meth:`none`, :meth:`constant`, :meth:`linear` or :meth:`exponential`. ``retries`` counts the
    attempts after the first.
    """

    retries: int
    shape: Literal["constant", "linear", "exponential"] = "constant"
    initial_ms: int = 0
    increment_ms: int = 0
    maximum_ms: int = 0
    factor: float = 2.0
    jitter: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.retries, bool) or not isinstance(self.retries, int):
            raise ConfigError(f"n, the number of retries, must be an int, not {type(self.retries).__name__}")
        if self.retries < 0:
            raise ConfigError(f"n, the number of retries, must not be negative, got {self.retries}")
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise ConfigError(f"factor must be a number, not {type(self.factor).__name__}")
        if not math.isfinite(self.factor) or self.factor < 1:
            raise ConfigError(f"factor must be a finite number of at least 1, got {self.factor!r}")
        if not isinstance(self.jitter, bool):
            raise ConfigError(f"jitter must be True or False, got {self.jitter!r}")

    @classmethod
    @check_arguments
    def none(cls) -> Retry:
        """Return a policy that never retries."""
        return cls(0)

    @classmethod
    @check_arguments
    def constant(cls, n: int, delay: Duration) -> Retry:
        """Return a policy of ``n`` retries, each after ``delay``."""
        ms = milliseconds(delay, "delay")
        return cls(n, "constant", initial_ms=ms, maximum_ms=ms)

    @classmethod
    @check_arguments
    def linear(cls, n: int, initial: Duration, increment: Duration, maximum: Duration) -> Retry:
        """Return a policy of ``n`` retries; the delay grows from ``initial`` by ``increment`` up to ``maximum``."""
        return cls(
            n,
            "linear",
            initial_ms=milliseconds(initial, "initial"),
            increment_ms=milliseconds(increment, "increment"),
            maximum_ms=milliseconds(maximum, "maximum"),
        )

    @classmethod
    @check_arguments
    def exponential(
        cls, n: int, initial: Duration, maximum: Duration, factor: float = 2, jitter: bool = False
    ) -> Retry:
        """Return a policy of ``n`` retries; the delay starts at ``initial`` and is multiplied by ``factor`` each time.

        It is at most ``maximum``. With ``jitter`` each delay is chosen uniformly between zero and that value.
        """
        return cls(
            n,
            "exponential",
            initial_ms=milliseconds(initial, "initial"),
            maximum_ms=milliseconds(maximum, "maximum"),
            factor=factor,
            jitter=jitter,
        )


DEFAULT_RETRY = Retry(3)
