"""Pressure sources, which make less urgent tasks wait: ``Scheduler(pressure=[CpuPressure(), ...])``."""

from taskmill.resources.psi import PsiPressure
from taskmill.resources.psutil_sampler import PsutilSampler
from taskmill.resources.sources import (
    BatteryPressure,
    CpuPressure,
    DiskPressure,
    MemoryPressure,
    NetworkPressure,
    Pressure,
)

__all__ = [
    "BatteryPressure",
    "CpuPressure",
    "DiskPressure",
    "MemoryPressure",
    "NetworkPressure",
    "Pressure",
    "PsiPressure",
    "PsutilSampler",
]
