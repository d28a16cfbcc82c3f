"""What `benchmarks.sizing` says of stores and changelog, in a minute and without Spark: the engine's shard task, called directly.

python -m benchmarks.stored [--sessions 2000000]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from benchmarks.sizing import bursts, commits, few_more, one_session_a_key
from sessionlake.config.load import Config
from sessionlake.config.store_engines import ENGINES, StoreEngine
from sessionlake.engine import exchange
from sessionlake.engine.operator import BatchContext
from sessionlake.engine.shard import ShardTask
from sessionlake.engine.split import SplitTask
from sessionlake.operators.sessions.kind import Sessions
from sessionlake.sources.decoding.files import PATH
from sessionlake.sources.files import source_files
from sessionlake.sources.registry import sources_of
from sessionlake.stream.tables import outputs_of
from sessionlake.warehouse.changelog import changelog_of


class Folder:
    """Stands for the tables, which all lie in one folder: a task asks for their places alone."""

    def __init__(self, config: Config) -> None:
        self.changelog = changelog_of(config)
        self._table = SimpleNamespace(
            uri=config.pipeline.warehouse,
            read=lambda: SimpleNamespace(columns=self.changelog.key_columns),
            exists=lambda: False,
        )

    def __getitem__(self, name: str) -> SimpleNamespace:
        return self._table


def batch(config: Config, kind: Sessions, number: int, files: list[str]) -> dict[str, Any]:
    """Run a batch of files through one shard after another; return the reports' sums."""
    shards = config.pipeline.shards
    context = BatchContext(number, f"c{number}", {}, clock_us=time.time_ns() // 1000)
    outputs = outputs_of(cast("Any", Folder(config)), kind)
    operator = kind.operator()
    expected = ((f"c{number - 1}" if number else None),) * shards
    task = ShardTask(
        operator, context, outputs, config.driver_store_dir, expected, store_engine=config.pipeline.store_engine
    )

    split = SplitTask(operator, context, outputs, shards)
    wire = split.run(pa.RecordBatch.from_pydict({PATH: [file]}) for file in files)
    sums = {"changes": 0, "changelog_bytes": 0, "shards": 0}
    for report in task.run(wire):
        if report["kind"][0].as_py() == exchange.SPLIT:
            continue
        if report["kind"][0].as_py() != exchange.DONE:
            raise RuntimeError(f"batch {number}: a shard was not computed")
        told = json.loads(report["payload"][0].as_py())
        sums["changes"] += told["stats"]["upserts"]
        sums["changelog_bytes"] += sum(file["size"] for file in told["files"])
        sums["shards"] += 1
    return sums


def measure(config: Config) -> dict[str, Any]:
    kind = Sessions.make(config, sources_of(None, config), None)  # type: ignore[arg-type]
    Path(config.pipeline.warehouse).mkdir(parents=True)
    files = source_files(config)
    first = batch(config, kind, 0, files)
    few_more(config, 0)
    started = time.time()
    second = batch(config, kind, 1, sorted(set(source_files(config)) - set(files)))
    applied_s = time.time() - started
    if first["shards"] != second["shards"]:
        raise RuntimeError("the second batch left shards out: their stores lack what is pending")
    stores = [p for p in Path(config.driver_store_dir).iterdir() if p.name.isdigit()]
    size = sum(f.stat().st_size for store in stores for f in store.rglob("*") if f.is_file())
    return {
        "sessions": first["changes"],
        "store_bytes_per_session": round(size / first["changes"], 1),
        "changelog_bytes_per_change": round(first["changelog_bytes"] / first["changes"], 1),
        "applied_s": round(applied_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=2_000_000)
    n = parser.parse_args().sessions
    with tempfile.TemporaryDirectory(prefix="sessionlake-stored-") as folder:
        for name, make in (("commits", commits), ("bursts", bursts), ("one session a key", one_session_a_key)):
            for engine in ENGINES:
                root = Path(folder, name.partition(" ")[0], engine)
                root.mkdir(parents=True)
                config = on_engine(make(root, {"commits": max(1, n // 200_000)}.get(name, n)), engine)
                print(f"{name}, {engine}", json.dumps(measure(config)), flush=True)


def on_engine(config: Config, engine: StoreEngine) -> Config:
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"store_engine": engine})})


if __name__ == "__main__":
    main()
