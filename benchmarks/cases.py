"""What `make bench` measures: each case in processes of its own, an older commit's and this one's in turns."""

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.processes import measure
from benchmarks.synthetic import (
    RETENTION,
    write_copies,
    write_events,
    write_fields,
    write_json,
    write_lists,
    write_sessions,
    write_table,
)
from benchmarks.trees import Tree
from sessionlake.engine.spark import LITTLE_JAVA

Found = dict[str, Any]
STREAM_SETTINGS = dict(LITTLE_JAVA)
"""Settings of Spark with which streams run. Older commits get them too: an A/A run without them differed by 1.5x to 2.1x of CPU."""
PARTS = (
    "million",
    "small",
    "json",
    "file_to_commit",
    "session_window",
    "batch",
    "stored",
    "limits",
    "emit",
    "unique",
    "layouts",
    "archive",
    "shape",
    "lookup",
    "engine",
    "nested",
)
NESTED: dict[str, Found] = {
    "three fields of JSON": {
        "event": {"key": "user.id", "time": "sent.at"},
        "aggregates": {"total": "sum(cart.amount)"},
    },
    "five elements of a list": {
        "event": {"explode": "items", "key": "items.key", "time": "items.ts"},
        "aggregates": {"total": "sum(items.amount)"},
    },
}
"""What reads the events of rows that have them as fields, and in lists."""
SHAPES: dict[str, Found] = {
    "where keeps a third": {"where": "amount <= 33"},
    "where keeps all": {"where": "amount > 0"},
}
"""What picks events, beside three computed columns and three filtered aggregates."""
SHAPED: Found = {
    "event": {"columns": {"taxed": "amount * 1.2D", "section": "substr(page, 4, 1)", "large": "amount >= 20"}},
    "aggregates": {
        "total": "sum(taxed) filter (where large)",
        "sections": "count(section) filter (where section is not null)",
        "small": "max(amount) filter (where not large)",
    },
}
ROUNDS = 2
"""Runs of each tree where two are compared: base, ours, base, ours."""
LIMITS = {
    "gap_by": "case when amount < 50 then interval 20 minutes end",
    "max_gap": "30 minutes",
    "max_length": "6 hours",
}
"""What limits sessions, about as long as those of the constant gap."""
POLICIES: dict[str, Found] = {
    "emit early and at the close": {"early": "1 minute", "full": "close"},
    "emit finals alone": {"full": "close", "late": "close"},
}
"""The sections [emit] whose costs are measured."""


def steady(seconds: list[float]) -> float:
    """Return the median of the last three quarters."""
    return statistics.median(seconds[len(seconds) // 4 :])


def summary(runs: list[Found], events: int) -> Found:
    """Return what runs of one case say together: means of their medians, the largest memory."""
    median_s = statistics.mean(steady(run["seconds"]) for run in runs)
    return {
        "median_s": round(median_s, 4),
        "events_per_s": round(events / median_s),
        "cpu_s": round(statistics.mean(run["cpu_s"] for run in runs), 3),
        "peak_memory_mb": max((run["peak_memory_mb"] for run in runs), key=lambda peak: float(peak["total"])),
        "runs": runs,
    }


@dataclass
class Bench:
    """The trees that are compared, and what was found so far, by part."""

    work: Path
    """A folder for the inputs; each is made when it is first needed."""
    trees: tuple[Tree, ...]
    """An older commit's, where there is one, and this checkout's."""
    scale: int = 1
    """What sizes are divided by."""
    results: dict[str, Found] = field(default_factory=dict)

    def part(self, name: str) -> Found:
        """Measure a part unless it has been; what it is compared with is measured first."""
        if name not in self.results:
            self.results[name] = getattr(self, f"_{name}")()
        return self.results[name]

    def _million(self) -> Found:
        """1M events a batch in four Parquet files."""
        return self._compared(self._million_case(), count=True)

    def _small(self) -> Found:
        """200k events a batch in one Parquet file."""
        return self._compared(self._small_case())

    def _json(self) -> Found:
        """The million's events as lines of JSON."""
        parquet, case = self.part("million"), self._million_case()
        lines = self.work / "json"
        write_json(Path(case["events"]), lines)
        found = self._compared(case | {"events": str(lines), "format": "json"})
        against = {tree.name: _ratio(parquet[tree.name], found[tree.name]) for tree in self.trees}
        return found | {"against_parquet": against}

    def _file_to_commit(self) -> Found:
        """From a file's appearance to its commit, in a running stream: ten events, and 10,000."""
        found = {}
        for name, case in (("ten", self._ten_case()), ("ten_thousand", self._to_commit("ten_thousand", 10_000, 16))):
            found[name] = self._compared(case, rounds=ROUNDS if name == "ten" else 1)
        return found

    def _ten_case(self) -> Found:
        return self._to_commit("ten", 10, 40)

    def _to_commit(self, name: str, events: int, batches: int) -> Found:
        """Return the case of files of so many events that appear one after the other."""
        is_new = not (self.work / name).exists()
        case = self._case("file_to_commit", name, max(events, 1000), batches, files=1, users=100_000)
        for file in Path(case["events"]).iterdir() if is_new else ():
            pq.write_table(pq.read_table(file).slice(0, events), file)
        return case | {"events_per_batch": events}

    def _session_window(self) -> Found:
        """Spark's session_window as a stream, in Spark's defaults and with this project's settings for streams."""
        found: Found = {}
        for size, case in (("million", self._million_case()), ("small", self._small_case())):
            ours, found[size] = self.part(size)["ours"], {}
            for name, conf in (("defaults", None), ("our_settings", STREAM_SETTINGS)):
                ran = self._run(self.trees[-1], case | {"kind": "native_stream", "conf": conf})
                one = summary([ran], case["events_per_batch"])
                found[size][name] = one | {"ratio": _ratio(one, ours), "cpu_ratio": _ratio(one, ours, "cpu_s")}
        return found

    def _batch(self) -> Found:
        """Sessionize all of the million's files at once: DuckDB, and Spark's session_window in its defaults."""
        ours, case = self.part("million")["ours"], self._million_case()
        found: Found = {}
        for name in ("duckdb", "session_window"):
            ran = self._run(self.trees[-1], case | {"kind": f"{name}_batch", "repeats": 4})
            expected = ours["runs"][0]["added_up"]
            if ran["added_up"] != expected:
                raise SystemExit(f"bench: {name} has sessions, events, total {ran['added_up']}, this engine {expected}")
            one = summary([ran], case["events_per_batch"] * case["batches"])
            found[name] = one | {"ratio": round(ours["events_per_s"] / one["events_per_s"], 3)}
        return found

    def _stored(self) -> Found:
        """Batches of 500k events on 10M stored sessions, and the same on 1M."""
        case, found = self._case("stored", "half", 500_000, 12, seed=11), {}
        for name, sessions in (("one_million", 1_000_000), ("ten_million", 10_000_000)):
            before = self.work / name
            write_sessions(before, sessions // self.scale)
            ran = self._run(self.trees[-1], case | {"before": str(before), "conf": STREAM_SETTINGS})
            found[name] = summary([ran], case["events_per_batch"])
        return found | {"ratio": _ratio(found["ten_million"], found["one_million"])}

    def _limits(self) -> Found:
        """The million's events, with sessions of a constant gap and with gaps of events' own and a longest session, in turns."""
        case = self._million_case() | {"conf": STREAM_SETTINGS}
        return {"gap_by and max_length": self._in_turns({"constant": case, "ours": case | {"session": LIMITS}})}

    def _emit(self) -> Found:
        """The million's events, with every change sent and by policies, in turns; finals beside Spark's append mode, which sends the same, if this run has measured that."""
        case = self._million_case() | {"conf": STREAM_SETTINGS}
        found: Found = {
            name: self._in_turns({"constant": case, "ours": case | {"more": {"emit": section}}})
            for name, section in POLICIES.items()
        }
        finals = found["emit finals alone"]["ours"]
        for name, append in self.results.get("session_window", {}).get("million", {}).items():
            ratios = {"ratio": _ratio(append, finals), "cpu_ratio": _ratio(append, finals, "cpu_s")}
            found[f"finals, Spark's append mode, {name.replace('_', ' ')}"] = {
                "constant": append,
                "ours": finals,
                **ratios,
            }
        return found

    def _unique(self) -> Found:
        """Events with 0.2 % of copies, taken as they come and each once, in turns: the million's, the small ones, and 50 for each key and batch."""
        busy = self._case("stream", "busy", 1_000_000, 12, users=20_000)
        cases = {"1M": self._million_case(), "200k": self._small_case(), "1M, 50 for a key": busy}
        found = {f"each event once, {name}": self._in_turns(self._once(case, name)) for name, case in cases.items()}
        ten = self._once(self._ten_case(), "ten")
        return found | {"each event once, ten, file to commit": self._in_turns(ten)}

    def _once(self, case: Found, name: str) -> dict[str, Found]:
        """Return a case with copies among its events, as they come and each once."""
        copies = self.work / f"copies {name}"
        if not copies.exists():
            write_copies(Path(case["events"]), copies, 0.002)
        case |= {"conf": STREAM_SETTINGS, "events": str(copies), "event": {"id": "offset"}}
        return {"constant": case, "ours": case | {"event": {"id": "offset", "unique_for": RETENTION}}}

    def _engine(self) -> Found:
        """Stores in sorted files and in RocksDB, in turns: the million's events, and ten from file to commit."""
        cases = {"1M": self._million_case(), "ten, file to commit": self._ten_case()}
        engines = {"constant": "files", "ours": "rocksdb"}
        return {
            f"RocksDB, {name}": self._in_turns(
                {
                    which: case | {"conf": STREAM_SETTINGS, "pipeline": {"store_engine": engine}}
                    for which, engine in engines.items()
                }
            )
            for name, case in cases.items()
        }

    def _layouts(self) -> Found:
        """Batches over a million stored sessions, with two aggregates from the first one on, and with the second one added after them, in turns."""
        before = self.work / "one_million"
        if not before.exists():
            write_sessions(before, 1_000_000 // self.scale)
        case = self._case("stored", "half", 500_000, 12, seed=11) | {"before": str(before), "conf": STREAM_SETTINGS}
        first, second = {"total": "sum(amount)"}, {"most": "max(amount)"}
        added = case | {"aggregates": first, "added": second}
        return {
            "an aggregate added": self._in_turns({"constant": case | {"aggregates": first | second}, "ours": added})
        }

    def _archive(self) -> Found:
        """The million's events with the archive of the columns that are read, and with that of whole rows too, in turns."""
        case = self._million_case() | {"conf": STREAM_SETTINGS}
        cases = {name: case | {"pipeline": {"archive": kept}} for name, kept in (("constant", True), ("ours", "all"))}
        return {"whole rows": self._in_turns(cases)}

    def _shape(self) -> Found:
        """The million's events as they are, and filtered, with computed columns and filtered aggregates, in turns."""
        case = self._million_case() | {"conf": STREAM_SETTINGS}
        return {
            name: self._in_turns({"constant": case, "ours": case | SHAPED | {"event": SHAPED["event"] | where}})
            for name, where in SHAPES.items()
        }

    def _lookup(self) -> Found:
        """The million's events with a column of their own summed up, and with one of the row of their key in a table, in turns."""
        case, found = self._million_case() | {"conf": STREAM_SETTINGS}, {}
        for rows in (1_000_000, 10_000_000):
            table = self.work / f"table_{rows}"
            if not table.exists():
                write_table(table, rows // self.scale)
            lookup = {"name": "users", "path": str(table), "on": "key = id", "columns": ["weight"]}
            looked_up = case | {"aggregates": {"total": "sum(users_weight)"}, "more": {"lookup": [lookup]}}
            found[f"lookup in {rows:,} rows"] = self._in_turns({"constant": case, "ours": looked_up})
        return found

    def _nested(self) -> Found:
        """The million's events as flat lines of JSON, and as fields of objects and as elements of lists, in turns."""
        case, flat, found = self._million_case(), self.work / "json", {}
        write_each = {flat: write_json, self.work / "fields": write_fields, self.work / "lists": write_lists}
        for lines, write in write_each.items():
            if not lines.exists():
                write(Path(case["events"]), lines)
        plain = case | {"conf": STREAM_SETTINGS, "format": "json", "events": str(flat)}
        for lines, (name, settings) in zip([*write_each][1:], NESTED.items(), strict=True):
            found[name] = self._in_turns({"constant": plain, "ours": plain | settings | {"events": str(lines)}})
        return found

    def _in_turns(self, cases: dict[str, Found]) -> Found:
        """Run two cases of this checkout, "constant" and "ours", one after the other."""
        runs: dict[str, list[Found]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, case in cases.items():
                runs[name].append(self._run(self.trees[-1], case))
        found: Found = {name: summary(ran, cases[name]["events_per_batch"]) for name, ran in runs.items()}
        found["ratio"] = _ratio(found["constant"], found["ours"])
        found["cpu_ratio"] = _ratio(found["constant"], found["ours"], "cpu_s")
        return found

    def _million_case(self) -> Found:
        return self._case("stream", "million", 1_000_000, 16)

    def _small_case(self) -> Found:
        return self._case("stream", "small", 200_000, 40, files=1)

    def _case(
        self, kind: str, name: str, events: int, batches: int, *, files: int = 4, users: int = 1_000_000, seed: int = 7
    ) -> Found:
        folder, events = self.work / name, events // self.scale
        if not folder.exists():
            write_events(folder, batches, events, users // self.scale, files, seed)
        return {
            "kind": kind,
            "events": str(folder),
            "format": "parquet",
            "events_per_batch": events,
            "batches": batches,
            "files": files,
            "shards": 2,
            "driver_memory": "6g",
        }

    def _compared(self, case: Found, *, count: bool = False, rounds: int = ROUNDS) -> Found:
        ours = self.trees[-1]
        runs: dict[str, list[Found]] = {tree.name: [] for tree in self.trees}
        for _ in range(rounds if len(self.trees) > 1 else 1):
            for tree in self.trees:
                first = count and tree is ours and not runs[tree.name]
                runs[tree.name].append(self._run(tree, case | {"conf": STREAM_SETTINGS, "count": first}))
        found: Found = {name: summary(ran, case["events_per_batch"]) for name, ran in runs.items()}
        if "base" in found:
            found["ratio"] = _ratio(found["base"], found["ours"])
            found["cpu_ratio"] = _ratio(found["base"], found["ours"], "cpu_s")
        return found

    def _run(self, tree: Tree, case: Found) -> Found:
        started = time.time()
        found = measure(tree, case, self.work)
        print(f"  {case['kind']}, {tree.name}: {time.time() - started:.0f} s", flush=True)
        return found


def _ratio(one: Found, other: Found, of: str = "median_s") -> float:
    return round(one[of] / other[of], 3)
