"""`python -m tqgen` and the console script `tqgen`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    from tqgen.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
