"""Run histories until some seconds are over: `python -m tests.store.crash [SECONDS] [SEED]`. A wrong one ends it with the line that repeats it."""

import sys
import time

from tests.store.crash.runs import run_history


def main() -> None:
    seconds, seed = float(sys.argv[1] if sys.argv[1:] else 60), int(sys.argv[2] if sys.argv[2:] else 0)
    until, steps, first = time.monotonic() + seconds, 0, seed
    while time.monotonic() < until:
        steps += run_history(seed)
        seed += 1
    sys.stdout.write(f"{seed - first:,} histories, {steps:,} steps, 0 wrong\n")


if __name__ == "__main__":
    main()
