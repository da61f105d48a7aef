"""Every Python block of the documentation passes mypy in strict mode, as a reader's own program would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import taskmill
from tests.acceptance.test_docs import PAGES, _program, blocks_of, name_of
from tests.typing.conftest import KeptCache

SOURCE = Path(taskmill.__file__).parents[1]
FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<message>.+)$", re.MULTILINE)

TOGETHER = "pages"
"""The folder of all pages that are one file; they are checked in one run."""


def _written(folder: Path) -> dict[str, Path]:
    """Write the programs of all pages; return the page of each folder or file, by its name."""
    pages: dict[str, Path] = {}
    for number, page in enumerate(PAGES):
        blocks = blocks_of(page.read_text(encoding="utf-8"))
        files = {block.file: block.code for block in blocks if block.file is not None}
        program = _program(blocks) if any(block.is_run for block in blocks) else None
        if not files and program is not None:
            (folder / TOGETHER).mkdir(exist_ok=True)
            (folder / TOGETHER / f"page_{number}.py").write_text(program, encoding="utf-8")
            pages[f"{TOGETHER}/page_{number}.py"] = page
        elif files:
            own = folder / f"page_{number}"
            own.mkdir()
            for name, code in [*files.items(), *([("page.py", program)] if program else [])]:
                (own / name).write_text(code, encoding="utf-8")
                pages[f"page_{number}/{name}"] = page
    return pages


def _checked(folder: Path, cache: Path) -> str:
    settings = folder.parent / "mypy.ini"
    # Django has no types of its own.
    settings.write_text(
        "[mypy]\nstrict = True\ndisallow_subclassing_any = False\n[mypy-django.*]\nignore_missing_imports = True\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", f"--config-file={settings}", f"--cache-dir={cache}", "."],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(400)
def test_every_page_passes_mypy_in_strict_mode(tmp_path: Path, kept_cache: KeptCache) -> None:
    pages = _written(tmp_path)
    cache = kept_cache("mypy_pages")
    assert len(set(pages.values())) > 20
    wrong = [
        f"{name_of(pages[folder.name + '/' + found['file']])}:{found['line']} ({found['file']}): {found['message']}"
        for folder in sorted({(tmp_path / name).parent for name in pages})
        for found in FOUND.finditer(_checked(folder, cache))
    ]
    assert not wrong, "\n".join(["the documentation has type errors:", *wrong])
