"""spark-submit entry point of `sessionlake expire`."""

import sys

from sessionlake.cli import main

if __name__ == "__main__":
    main(["expire", *sys.argv[1:]])
