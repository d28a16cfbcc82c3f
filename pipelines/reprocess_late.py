"""spark-submit entry point of `sessionlake reprocess-late`."""

import sys

from sessionlake.cli import main

if __name__ == "__main__":
    main(["reprocess-late", *sys.argv[1:]])
