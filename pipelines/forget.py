"""spark-submit entry point of `sessionlake forget`."""

import sys

from sessionlake.cli import main

if __name__ == "__main__":
    main(["forget", *sys.argv[1:]])
