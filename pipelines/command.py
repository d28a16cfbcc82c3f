"""The entry point for spark-submit: `spark-submit pipelines/command.py compact clicks.toml` is `sessionlake compact clicks.toml`."""

from sessionlake.cli import main

if __name__ == "__main__":
    main(prog_name="sessionlake")
