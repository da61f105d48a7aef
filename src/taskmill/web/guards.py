"""The rules of the page for hosts, origins and headers, independent of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast
from urllib.parse import urlsplit

from taskmill import ConfigError

SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
"""Sent with every response: no inline code, no other origin, no framing, no guessing of types."""

NO_STORE = "no-store"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
LOOPBACK_ADDRESSES = frozenset({"localhost", "127.0.0.1", "::1"})

SAFE_METHODS = frozenset({"GET", "HEAD"})


def is_loopback(address: str) -> bool:
    """True if a server that listens on this address can be reached from this machine only."""
    return address in LOOPBACK_ADDRESSES or address.startswith("127.")


def checked_hosts(hosts: object) -> frozenset[str] | None:
    """Check ``allowed_hosts``: host names without a port, or ``None`` if the outer application checks them."""
    if hosts is None:
        return None
    if isinstance(hosts, str) or not isinstance(hosts, Iterable):
        raise ConfigError(f"allowed_hosts must be a list of host names, got {hosts!r}")
    return frozenset(_checked_host(name) for name in cast("Iterable[object]", hosts))


def _checked_host(name: object) -> str:
    if not isinstance(name, str) or not name or name != name.strip() or "/" in name:
        raise ConfigError(f"allowed_hosts must be host names such as 'tasks.example.org', got {name!r}")
    return _without_port(name.lower())


def _without_port(host: str) -> str:
    """Return the name of a Host header; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        return host[: host.find("]") + 1] or host
    if host.count(":") > 1:
        return f"[{host}]"
    return host.partition(":")[0]


def is_allowed_host(host: str | None, allowed: frozenset[str] | None) -> bool:
    """True if a Host header names one of the allowed hosts. Another name may be an attack by DNS rebinding."""
    if allowed is None:
        return True
    return host is not None and _without_port(host.strip().lower()) in allowed


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """False if a browser says that a page of another origin sent the request.

    ``Sec-Fetch-Site`` decides if it is present. Browsers without it send ``Origin`` with every change. So a change with
    neither header was sent by a program, and another site cannot make a program send a cookie.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin, host = headers.get("origin"), headers.get("host")
    if origin is None:
        return True
    if not host:
        return False
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    return _with_port(parts.netloc.lower(), parts.scheme, port) == _with_port(host.strip().lower(), parts.scheme, None)


def _with_port(host: str, scheme: str, port: int | None) -> str:
    name = _without_port(host)
    written = host[len(name) :].removeprefix(":")
    return f"{name}:{port or written or (443 if scheme == 'https' else 80)}"
