"""What tasks cost without Spark: CPU of a batch's map tasks and shards in one process, by option, in turns in one run.

    python -m benchmarks.tasks [--only OPTION ...] [--batches N] [--events N] [--rounds N] [--profile]

The input is that of `make bench`'s first part. CPU milliseconds a batch are means over the last half of the batches; of several rounds the
least. --profile prints where the time of each option's tasks goes instead: own and all milliseconds a batch, and calls.
"""

import argparse
import cProfile
import json
import os
import pstats
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from rich.console import Console

from benchmarks.cases import POLICIES, SHAPED, SHAPES
from benchmarks.ours import make_config
from benchmarks.stored import Folder
from benchmarks.synthetic import RETENTION, write_copies, write_events
from sessionlake.config.store_engines import StoreEngine
from sessionlake.engine import exchange
from sessionlake.engine.operator import BatchContext, Operator, add_stats, stats_of
from sessionlake.engine.shard import ShardTask
from sessionlake.engine.split import SplitTask
from sessionlake.operators.sessions.kind import Sessions
from sessionlake.sources.decoding.files import PATH
from sessionlake.sources.registry import sources_of
from sessionlake.stream.tables import outputs_of
from sessionlake.stream.unique import once

COPIES, FILES = 0.002, 4
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rocksdb": {"pipeline": {"store_engine": "rocksdb"}},
    **{name: {"more": {"emit": policy}} for name, policy in POLICIES.items()},
    "as they come": {"event": {"id": "offset"}},
    "unique": {"event": {"id": "offset", "unique_for": RETENTION}},
    **{name: SHAPED | {"event": SHAPED["event"] | where} for name, where in SHAPES.items()},
}
console = Console(highlight=False, width=160)


@dataclass
class Run:
    """One pipeline's batches, and the CPU seconds of their map tasks and of their shards."""

    operator: Operator[Any]
    outputs: tuple[Any, ...]
    stores: str
    shards: int
    engine: StoreEngine
    state: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    split_s: list[float] = field(default_factory=list)
    shard_s: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, home: Path, events: Path, option: dict[str, Any]) -> "Run":
        """Begin one in an empty directory."""
        config = make_config(home, {"events": str(events), "format": "parquet", "files": FILES, "shards": 2, **option})
        Path(config.pipeline.warehouse).mkdir()
        kind = Sessions.make(config, sources_of(None, config), None)  # type: ignore[arg-type]
        outputs = outputs_of(cast("Any", Folder(config)), kind)
        of = config.pipeline
        return cls(once(kind.operator(), kind.inputs), outputs, config.driver_store_dir, of.shards, of.store_engine)

    def batch(self, files: list[Path], profile: cProfile.Profile | None) -> None:
        """Run a batch as the engine does, one task after the other."""
        number, shards = self.number, self.shards
        context = BatchContext(number, f"c{number}", self.state, clock_us=time.time_ns() // 1000)
        split = SplitTask(self.operator, context, self.outputs, shards)
        expected = ((f"c{number - 1}" if number else None),) * shards
        task = ShardTask(self.operator, context, self.outputs, self.stores, expected, store_engine=self.engine)
        with profile or nullcontext():
            begun = time.process_time()
            wire = [row for file in files for row in split.run([pa.RecordBatch.from_pydict({PATH: [str(file)]})])]
            middle = time.process_time()
            reports = list(task.run(wire))
            self.shard_s.append(time.process_time() - middle)
            self.split_s.append(middle - begun)
        stats: dict[str, int] = {}
        for report in reports:
            kind, told = report["kind"][0].as_py(), json.loads(report["payload"][0].as_py())
            if kind not in (exchange.SPLIT, exchange.DONE):
                raise SystemExit(f"batch {number}: a shard was not computed: {kind}")
            add_stats(stats, stats_of(told))
        self.state, self.number = self.operator.next_state(self.state, stats), number + 1


def measured(option: str, folder: Path, *, batches: int, is_profiled: bool) -> tuple[float, float]:
    """Return the CPU milliseconds of a batch's map tasks, and of its shards."""
    input_ = folder / ("copies" if "id" in OPTIONS[option].get("event", {}) else "events")
    files = sorted(input_.iterdir())
    profile = cProfile.Profile() if is_profiled else None
    with tempfile.TemporaryDirectory(dir=folder) as home:
        run = Run.of(Path(home), input_, OPTIONS[option])
        for number in range(batches):
            run.batch(files[number * FILES : (number + 1) * FILES], profile if number >= batches // 2 else None)
    last = batches - batches // 2
    if profile is not None:
        show(option, pstats.Stats(profile), last)
    split, shard = (1000 * sum(seconds[-last:]) / last for seconds in (run.split_s, run.shard_s))
    return split, shard


def show(option: str, stats: pstats.Stats, batches: int) -> None:
    """Print a profile, by own time."""
    console.print(f"[bold]{option}[/bold]: own ms, all ms, calls a batch")
    found = cast("dict[tuple[str, int, str], Any]", stats.stats)  # type: ignore[attr-defined]
    for (file, line, name), (_, calls, own, all_, _) in sorted(found.items(), key=lambda item: -item[1][2])[:60]:
        place = "/".join(Path(file).parts[-2:])
        console.print(
            f"{1000 * own / batches:8.1f} {1000 * all_ / batches:8.1f} {calls / batches:8.1f}  {place}:{line} {name}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=OPTIONS, help="an option; may be given several times")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--events", type=int, default=500_000, help="events a batch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {option: [] for option in args.only or OPTIONS}
    with tempfile.TemporaryDirectory(prefix="bench-tasks-") as folder:
        events, copies = Path(folder, "events"), Path(folder, "copies")
        write_events(events, args.batches, args.events, 2 * args.events, FILES)
        write_copies(events, copies, COPIES)
        for _ in range(1 if args.profile else args.rounds):
            for option, each in found.items():
                each.append(measured(option, Path(folder), batches=args.batches, is_profiled=args.profile))
    console.print(f"{args.events:,} events a batch, load {os.getloadavg()[0]:.1f}; CPU ms a batch")
    for option, each in found.items():
        split, shard = (min(times) for times in zip(*each, strict=True))
        console.print(f"{option:<32} map tasks {split:7.0f}  shards {shard:7.0f}  all {split + shard:7.0f}")


if __name__ == "__main__":
    main()
