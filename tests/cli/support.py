"""A pipeline's directory as a user has it, and its commands."""

import json
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from sessionlake.cli import main

CONFIG = """\
[pipeline]
name = "clicks"
warehouse = "warehouse"
shards = 2

[source]
kind = "files"
path = "events"
format = "json"

[event]
key = "user"
time = "time"
time_unit = "s"

[session]
gap = "30 minutes"
grace = "10 minutes"
retention = "2 hours"

[aggregates]
total = "sum(v)"
"""


class Project:
    """A directory with a config and one file of events."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "clicks.toml"
        (root / "events").mkdir(parents=True)
        self.add_events(0)
        self.path.write_text(CONFIG)

    def add_events(self, number: int) -> None:
        rows = [{"user": "u", "time": 1_700_000_000 + number, "v": 1}]
        (self.root / "events" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def edit(self, old: str, new: str) -> None:
        text = self.path.read_text()
        assert text.count(old) == 1
        self.path.write_text(text.replace(old, new))

    def call(self, *arguments: str) -> Any:
        return CliRunner().invoke(main, [arguments[0], str(self.path), *arguments[1:]])

    def assert_error(self, line: str, *arguments: str) -> None:
        """Check that the command ends with exactly this line, {root} being the project's directory, after a place in the config."""
        result = self.call(*(arguments or ("run", "--once")))
        told = re.sub(rf"^sessionlake: {re.escape(str(self.path))}:(\d+: )?\s*", "sessionlake: ", result.stderr)
        assert (result.exit_code, told) == (2, f"sessionlake: {line.format(root=self.root)}\n")
