"""spark-submit entry point of `sessionlake run`."""

import sys

from sessionlake.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
