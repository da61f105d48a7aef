"""Who may read and who may change: the token of the page, sessions of browsers, or the program's own ``authorize``.

A token is compared in constant time, and only a limited number of wrong ones is compared at all. A session is a random
value in a cookie that scripts cannot read. Only the hash of it is kept, in memory, so it ends with the process.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from starlette.requests import Request

from taskmill.web.problems import RequestRefused

Access = Literal["full", "read"]

COOKIE = "taskmill-session"
SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 1_000

FAILURES = 10
"""How many wrong tokens an address may send before it is refused; all addresses together may send ten times as many."""
FAILURE_SECONDS = 60.0
MOST_ADDRESSES = 1_000


class WrongTokens:
    """Counts wrong tokens by address, in a window that starts with the first one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise a 429 if this address, or all addresses together, have sent too many wrong tokens."""
        for name, most in ((address, FAILURES), ("", FAILURES * 10)):
            since, count = self._failures.get(name, (0.0, 0))
            left = since + FAILURE_SECONDS - self._clock()
            if count >= most and left > 0:
                raise RequestRefused(
                    429,
                    "too_many_attempts",
                    f"too many wrong tokens; wait {left:.0f} s",
                    {"retry-after": str(int(left) + 1)},
                )

    def failed(self, address: str) -> None:
        for name in (address, ""):
            since, count = self._failures.pop(name, (self._clock(), 0))
            if self._clock() - since >= FAILURE_SECONDS:
                since, count = self._clock(), 0
            self._failures[name] = (since, count + 1)
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)


class Sessions:
    """The sessions of browsers. The oldest ends when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at: OrderedDict[bytes, float] = OrderedDict()

    def begin(self) -> str:
        value = secrets.token_urlsafe(32)
        self._ends_at[_hash(value)] = self._clock() + SESSION_SECONDS
        while len(self._ends_at) > MOST_SESSIONS:
            self._ends_at.popitem(last=False)
        return value

    def knows(self, value: str) -> bool:
        return self._ends_at.get(_hash(value), 0.0) > self._clock()

    def end(self, value: str) -> None:
        self._ends_at.pop(_hash(value), None)


class TokenAccess:
    """Full access for the token of the page and for the sessions that it began."""

    login: Literal["token", "authorize"] = "token"

    def __init__(self, token: str) -> None:
        self._token = token
        self.sessions = Sessions()
        self._attempts = WrongTokens()

    async def of(self, request: Request) -> Access:
        """Return the access of a request, or raise a 401 or 429."""
        bearer = bearer_of(request)
        if bearer is not None:
            self.check(bearer, request)
            return "full"
        if (cookie := request.cookies.get(COOKIE)) is not None and self.sessions.knows(cookie):
            return "full"
        raise RequestRefused(
            401,
            "unauthorized",
            "open the address that taskmill web printed, with its #token=, or send Authorization: Bearer TOKEN",
            {"www-authenticate": "Bearer"},
        )

    def check(self, token: str, request: Request) -> None:
        """Raise a 401 unless the token is right, or a 429 after too many wrong ones."""
        address = request.client.host if request.client is not None else "unknown"
        self._attempts.check(address)
        if not hmac.compare_digest(_hash(token), _hash(self._token)):
            self._attempts.failed(address)
            raise RequestRefused(401, "wrong_token", "the token is wrong", {"www-authenticate": "Bearer"})


class ProgramAccess:
    """Access as ``authorize`` decides, the function of the program that the page is mounted in."""

    login: Literal["token", "authorize"] = "authorize"

    def __init__(self, authorize: Callable[[Request], Any]) -> None:
        self._authorize = authorize

    async def of(self, request: Request) -> Access:
        answer: object = self._authorize(request)
        if inspect.isawaitable(answer):
            answer = await _resolved(answer)
        if answer is True:
            return "full"
        if answer == "read" and isinstance(answer, str):
            return "read"
        if answer is not False and answer is not None:
            # Any other value is ambiguous, so access is denied and the log says why.
            raise TypeError(f"authorize must return True, False or 'read', got {type(answer).__name__}")
        raise RequestRefused(403, "forbidden", "the program that this page belongs to refused the request")


async def _resolved(answer: Awaitable[object]) -> object:
    return await answer


def bearer_of(request: Request) -> str | None:
    """Return the token of the Authorization header, or None without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def who(request: Request) -> str:
    """Name the sender of a request for the audit log."""
    user = request.scope.get("user")
    name = getattr(user, "display_name", None) or getattr(user, "username", None)
    address = request.client.host if request.client is not None else "unknown"
    way = "bearer" if bearer_of(request) is not None else "session"
    return f"{name} at {address}" if isinstance(name, str) and name else f"{way} at {address}"


def _hash(value: str) -> bytes:
    # Hashing makes all values equally long, and keeps sessions out of memory dumps and logs.
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
