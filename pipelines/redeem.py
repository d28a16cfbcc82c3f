"""spark-submit entry point of `sessionlake redeem`."""

import sys

from sessionlake.cli import main

if __name__ == "__main__":
    main(["redeem", *sys.argv[1:]])
