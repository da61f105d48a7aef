"""``import_ms_over_stdlib``: what importing taskmill costs beyond the standard modules it needs.

taskmill imports the module of a name when the name is first used. So the benchmark imports the names that a program
needs to define and run tasks. A child process imports them and lists the standard modules in ``sys.modules``. Fresh
interpreters import either that list or taskmill's names, alternately, and each times only the import. The difference of
the medians counts. msgspec is a dependency of ours, so it is not on the list. Bytecode is cached in a separate folder
before the first timing, as it is for an installed package, whatever the environment says about writing it.

msgspec also imports typing_extensions if another package has installed it. taskmill does not need it, so it is hidden:
the benchmark measures what ``pip install taskmill`` gives.
"""

from __future__ import annotations

import json
import statistics
from functools import partial

from benchmarks.measuring import Report, Settings, Target, interleaved, run_child, summary

NAMES = "from taskmill import Context, Domain, Priority, Retry, Scheduler"
_HIDE = "import sys; sys.modules['typing_extensions'] = None"
_LIST = f"""
{_HIDE}
before = set(sys.modules)
import json
{NAMES}
names = [name for name in sys.modules if name not in before and name.partition(".")[0] in sys.stdlib_module_names]
print(json.dumps([name for name in names if not name.startswith(("taskmill", "msgspec", "json"))]))
"""
_TIMED = """
{hide}
import time
began = time.perf_counter()
{imports}
print((time.perf_counter() - began) * 1000)
"""


def measure(settings: Settings) -> Report:
    cache = str(settings.folder / "bytecode")
    modules: list[str] = json.loads(_run(_LIST, cache))
    standard = "\n".join(f"import {name}" for name in modules)
    sides = {"taskmill": partial(_import, NAMES, cache), "standard": partial(_import, standard, cache)}
    interleaved(1, sides)
    times = interleaved(12 if settings.quick else 20, sides)
    report = Report()
    for name, found in times.items():
        report.about[f"{name}_ms"] = summary(found)
    report.about["standard_modules"] = len(modules)
    difference = statistics.median(times["taskmill"]) - statistics.median(times["standard"])
    report.add("import_ms_over_stdlib", difference, Target("<=", 30))
    return report


def _import(imports: str, cache: str) -> float:
    return float(_run(_TIMED.format(hide=_HIDE, imports=imports), cache))


def _run(code: str, cache: str) -> str:
    return run_child(["-c", code], PYTHONPYCACHEPREFIX=cache, PYTHONDONTWRITEBYTECODE="")
