"""Linux pressure stall information (PSI): the share of time in which tasks waited for CPU, disk or memory."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from taskmill.errors import ConfigError
from taskmill.resources.cgroup import Cgroup, own_cgroup

PsiResource = Literal["cpu", "io", "memory"]
_SYSTEM = Path("/proc/pressure")


class PsiPressure:
    """The share of the last 10 seconds in which at least one process of the machine waited for ``resource``.

    In a control group, such as a container, only its own processes count.
    """

    def __init__(self, resource: PsiResource, *, system: Path = _SYSTEM, cgroup: Cgroup | None = None) -> None:
        if resource not in get_args(PsiResource):
            raise ConfigError(f"resource must be one of 'cpu', 'io' and 'memory', got {str(resource)[:40]!r}")
        self.name = f"psi_{resource}"
        cgroup = own_cgroup() if cgroup is None else cgroup
        own = cgroup.pressure_file(resource) if cgroup else None
        self.file = own or system / resource
        try:
            self.pressure()
        except (OSError, ValueError) as missing:
            raise ConfigError(
                f"this system does not report its pressure: {self.file} cannot be read ({missing}). It needs Linux "
                "4.20 or newer with CONFIG_PSI, and the boot option psi=1 where it is off by default"
            ) from missing

    def pressure(self) -> float:
        """Return the pressure from 0 to 1."""
        return some_avg10(self.file.read_text(encoding="ascii"))


def some_avg10(text: str) -> float:
    """Return the ``some avg10`` value as a fraction: ``some avg10=1.53 avg60=...`` is 0.0153."""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["some"]:
            for word in words[1:]:
                name, _, value = word.partition("=")
                if name == "avg10":
                    return min(max(float(value) / 100, 0.0), 1.0)
    raise ValueError("it has no line 'some avg10=...'")
