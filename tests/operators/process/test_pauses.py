"""The example: pauses of a year over the demo's real commits, in three batches, against plain Python and the oracle."""

import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sessionlake.config.load import load_config
from sessionlake.config.shipped import shipped_directory
from sessionlake.examples.pauses import YEAR_US, Pauses
from sessionlake.operators.process.section import ProcessSection
from tests.operators.process.memory_segments import MemorySegments
from tests.operators.process.process_support import ProcessPipeline
from tests.oracle.process import Machine

TYPES = {"what": str, "repo": str, "since": datetime, "days": int}
RETENTION_US = 10 * YEAR_US


@pytest.fixture(scope="module")
def commits() -> list[dict[str, Any]]:
    files = sorted((Path(__file__).parents[3] / "src/sessionlake/examples/commits").glob("*.json.gz"))
    events = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    return [
        {
            "key": event["author"],
            "time_us": int(datetime.fromisoformat(event["authored_at"]).timestamp()) * 1_000_000,
            "repo": event["repo"],
            "event_id": event["event_id"],
        }
        for event in events
    ]


def test_the_examples_config_is_one() -> None:
    config = load_config(shipped_directory("pipelines") / "pauses.toml")
    assert isinstance(config.section, ProcessSection)
    assert config.retention_us == RETENTION_US


def test_pauses_of_a_year_in_the_commits(commits: list[dict[str, Any]]) -> None:
    machine = Machine(Pauses, TYPES, RETENTION_US, 0)
    found = ProcessPipeline(
        Path(),
        "Pauses",
        {"repo": pa.string(), "event_id": pa.string()},
        {"what": "string", "repo": "string", "since": "timestamp", "days": "long"},
        retention_us=RETENTION_US,
        module="sessionlake.examples.pauses",
        shards=2,
        opened=MemorySegments,
    )
    size = -(-len(commits) // 3)
    for first in range(0, len(commits), size):
        machine.batch(commits[first : first + size])
        found.batch(commits[first : first + size], tasks=2)
    sent = sorted(
        (r["output_key"], r["output_time"], r["position"], r["ordinal"], r["what"], r["repo"]) for r in found.sent
    )
    assert sent == sorted((*row[:4], row[4]["what"], row[4]["repo"]) for row in machine.sent)
    # By hand: rows of an author that go beyond the latest before by more than a year.
    latest: dict[str, int] = {}
    returned = []
    for row in commits:
        last = latest.get(row["key"])
        if last is not None and row["time_us"] - last > YEAR_US:
            returned.append((row["key"], row["time_us"]))
        latest[row["key"]] = max(last or row["time_us"], row["time_us"])
    accepted = [(r["output_key"], r["output_time"]) for r in found.sent if r["what"] == "returned"]
    assert sorted(accepted) == sorted(returned)
    assert len(returned) > 10
