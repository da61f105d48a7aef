"""Print what taskmill and some of its extras need, one requirement per line.

python tools/requirements.py cli monitor
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(*extras: str) -> list[str]:
    """Return the requirements of taskmill and of these extras."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]


if __name__ == "__main__":
    print("\n".join(requirements(*sys.argv[1:])))
