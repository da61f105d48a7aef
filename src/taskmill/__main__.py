"""Run the ``taskmill`` command as ``python -m taskmill``."""

import sys

from taskmill.cli import main

if __name__ == "__main__":
    sys.exit(main())
