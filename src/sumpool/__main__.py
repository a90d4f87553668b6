"""Entry point of ``python -m sumpool``."""

import sys

from sumpool.cli import main

if __name__ == "__main__":
    sys.argv[0] = "sumpool"  # what the run folder records as the command
    sys.exit(main())
