"""spark-submit entry point of `sessionlake quality`."""

import sys

from sessionlake.cli import main

if __name__ == "__main__":
    main(["quality", *sys.argv[1:]])
