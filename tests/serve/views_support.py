"""Views of the stores of keyed tables."""

from pathlib import Path
from typing import Any

from sessionlake.config.load import Config, parse_config
from sessionlake.serve.decoder import decoder_of
from sessionlake.serve.replica import LocalShard, View
from sessionlake.store.secondary import SecondarySegments, identity
from sessionlake.testing import TableHarness
from sessionlake.warehouse.batch_commit import BatchCommit, Settings


def table_config(root: Path, **sections: Any) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "p", "warehouse": "lake", "store": "store", "shards": 1},
            "source": {"kind": "files", "path": "events", "format": "json"},
            "event": {"key": "key", "time": "time_us", "time_unit": "us"},
            "table": {"columns": ["v"], "retention": "1 day"},
            **sections,
        },
        root,
    )


def view_of(config: Config, harness: TableHarness) -> View:
    """Return a view of a harness's one store as of its last batch."""
    path = harness._shards.store(harness._operator, 0)._db.path
    types = {name: str(type_) for name, type_ in harness._operator.spec.events.decoder.columns.types.items()}
    commit = BatchCommit("p", "id", 1, "c1", harness.state, {}, ("c1",), "", Settings({}, {}, types), None, 0, 0)
    shard = LocalShard(path, identity(path), SecondarySegments(path))
    return View(commit, {0: shard}, {}, decoder_of(config, commit))
