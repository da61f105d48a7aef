"""``python -m taskmill`` is the command ``taskmill``."""

import sys

from taskmill.cli import main

if __name__ == "__main__":
    sys.exit(main())
