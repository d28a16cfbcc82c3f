"""`python -m sessionlake` is the command `sessionlake`, for where no script of it is on PATH."""

from sessionlake.cli import main

if __name__ == "__main__":
    main(prog_name="sessionlake")
