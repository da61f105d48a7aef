"""A program that is forked from a warm process behaves as in a new interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm_python

PROGRAMS = {
    "arguments": ["-c", "import sys; print(sys.argv, __name__, input())", "a", "ü"],
    "a module": ["-m", "textwrap"],
    "a script": ["script.py", "b"],
    "the folder and the path": ["-c", "import os, sys; print(os.getcwd(), sys.path)"],
    "the environment": ["-c", "import os, time; print(sorted(os.environ.items()), time.tzname)"],
    "an exit code": ["-c", "raise SystemExit(3)"],
    "an exit message": ["-c", "raise SystemExit('no')"],
    "an interrupt": ["-c", "raise KeyboardInterrupt"],
    "a signal": ["-c", "import os; os.kill(os.getpid(), 15)"],
    "both outputs": ["-c", "import sys; print('out', end=''); print('wrong', file=sys.stderr)"],
    "a closed output": ["-c", "import os; print('lost'); os.close(1)"],
    "a warning is an error": ["-W", "error", "-c", "import warnings; warnings.warn('old')"],
    "the end": [
        "-c",
        "import atexit, threading; atexit.register(print, 2); threading.Thread(target=print, args=[1]).start()",
    ],
    "descriptors": ["-c", "import os; print(os.listdir('/proc/self/fd'))"],
    "random choices": ["-c", "import random, sys; sys.exit(random.getstate() == random.Random(0).getstate())"],
    "children": ["-c", "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(4)']).returncode)"],
}


def _done(start: Any, program: list[str], folder: Path) -> tuple[int, str, str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "elsewhere", "TZ": "Asia/Tokyo", "LC_CTYPE": "C.UTF-8"}
    reading, writing = os.pipe()
    os.write(writing, b"said\n")
    os.close(writing)
    with os.fdopen(reading) as said:
        done = start(
            [sys.executable, *program],
            cwd=folder,
            env=environment,
            stdin=said,
            capture_output=True,
            text=True,
            timeout=60,
        )
    return done.returncode, done.stdout, done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_forked_program_does_what_a_new_interpreter_does(what: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nprint(sys.argv, sys.path[0], __file__)\n")
    warm, new = (_done(start, PROGRAMS[what], tmp_path) for start in (warm_python.run, subprocess.run))
    assert warm == new


def test_a_forked_program_is_killed_and_waited_for() -> None:
    with warm_python.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert process.poll() == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


def test_a_forked_program_has_a_session_of_its_own_if_asked() -> None:
    program = [sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"]
    assert warm_python.run(program, capture_output=True, text=True).stdout == "False\n"
    assert warm_python.run(program, capture_output=True, text=True, start_new_session=True).stdout == "True\n"


def test_unbuffered_output_arrives_at_once() -> None:
    program = [sys.executable, "-c", "print('now'); input()"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with warm_python.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        assert process.poll() is None
        process.communicate("\n")


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LD_PRELOAD"])
def test_what_cannot_be_imitated_starts_a_new_interpreter(name: str) -> None:
    value = "7" if name == "PYTHONHASHSEED" else ""
    program = [sys.executable, "-c", "import sys; print('taskmill' in sys.modules)"]
    own = {**os.environ, name: value}
    assert warm_python.run(program, capture_output=True, text=True, env=own).stdout == "False\n"
    if hasattr(os, "pidfd_open"):
        assert warm_python.run(program, capture_output=True, text=True).stdout == "True\n"
