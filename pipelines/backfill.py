"""spark-submit entry point of `sessionlake backfill`."""

import sys

from sessionlake.cli import main

if __name__ == "__main__":
    main(["backfill", *sys.argv[1:]])
