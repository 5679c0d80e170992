"""`python -m tqgen` and the console script `tqgen`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    gc.set_threshold(100_000)  # a compilation makes many objects and keeps nearly all of them until its end
    from tqgen.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
