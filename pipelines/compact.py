"""spark-submit entry point of `sessionlake compact`."""

import sys

from sessionlake.cli import main

if __name__ == "__main__":
    main(["compact", *sys.argv[1:]])
