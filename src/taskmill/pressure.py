"""Pressure sources, which make less urgent tasks wait: ``Scheduler(pressure=[CpuPressure(), ...])``."""

from taskmill.resources.samplers import PsutilSampler
from taskmill.resources.sources import (
    BatteryPressure,
    CpuPressure,
    DiskPressure,
    MemoryPressure,
    NetworkPressure,
    Pressure,
    PsiPressure,
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
