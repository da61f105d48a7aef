"""``import_ms_over_stdlib``: what ``import taskmill`` costs beyond the standard modules it needs.

Which standard modules those are is asked of a child that imports taskmill and lists ``sys.modules``. Then
fresh interpreters import either that list or taskmill, in turn, each timing only the import; the difference
of the medians counts. msgspec is ours to answer for, so it is not on the list.
"""

from __future__ import annotations

import json
import statistics
from functools import partial

from benchmarks.measuring import Report, Settings, Target, interleaved, run_child, summary

_LIST = """
import sys
before = set(sys.modules)
import taskmill, json
names = [name for name in sys.modules if name not in before and name.partition(".")[0] in sys.stdlib_module_names]
print(json.dumps([name for name in names if not name.startswith(("taskmill", "msgspec", "json"))]))
"""
_TIMED = """
import sys, time
began = time.perf_counter()
{imports}
print((time.perf_counter() - began) * 1000)
"""


def measure(settings: Settings) -> Report:
    modules: list[str] = json.loads(run_child(["-c", _LIST]))
    standard = "\n".join(f"import {name}" for name in modules)
    times = interleaved(
        12 if settings.quick else 20,
        {"taskmill": partial(_import, "import taskmill"), "standard": partial(_import, standard)},
    )
    report = Report()
    for name, found in times.items():
        report.about[f"{name}_ms"] = summary(found)
    report.about["standard_modules"] = len(modules)
    difference = statistics.median(times["taskmill"]) - statistics.median(times["standard"])
    report.add("import_ms_over_stdlib", difference, Target("<=", 60))
    return report


def _import(imports: str) -> float:
    return float(run_child(["-c", _TIMED.format(imports=imports)]))
