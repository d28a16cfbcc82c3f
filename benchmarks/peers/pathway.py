"""Pathway in a process of its own: CSV files in, a CSV file out, its input persisted.

Its packages are not this project's (older pyarrow, newer pandas): uv makes an environment from the head of pathway_program.py.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.peers.programs import HERE, watched
from benchmarks.peers.results import added_up
from benchmarks.peers.workloads import GRACE_MS, WORKLOADS
from benchmarks.trees import ROOT

PROGRAM = HERE / "pathway_program.py"
SETTINGS = "2 threads, input persisted in files, state in memory; a session is never forgotten"


def pathway_peer(case: dict[str, Any]) -> dict[str, Any]:
    home, workload = Path(case["home"]), WORKLOADS[case["workload"]]
    told = {
        "workload": workload.name,
        "home": str(home),
        "batches": case["batches"],
        "grace_ms": GRACE_MS,
        "size_ms": workload.size_ms,
        "step_ms": workload.step_ms,
        "folder": str(_lines(Path(case["input"], "events"), home / "waiting")),
    }
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    command = [uv, "run", "--quiet", "--no-project", "--script", str(PROGRAM), json.dumps(told)]
    # Safe: `import pathway` must not find this module, which lies beside the program.
    found = watched(command, home, {"PATHWAY_THREADS": "2", "PYTHONPATH": "", "PYTHONSAFEPATH": "1"})
    # Each change is a row that takes the old one back (-1) and a new one (+1).
    rows = f"""(SELECT key, start, "end", count, total, unnest(range(copies)) FROM
        (SELECT key, start, "end", count, total, sum(diff)::BIGINT AS copies FROM read_csv('{home}/out.csv') GROUP BY ALL))"""
    return found | {"added_up": added_up(rows, workload, case), "version": version(), "settings": SETTINGS}


def _lines(source: Path, target: Path) -> Path:
    """Write a CSV file for each Parquet file; return their folder."""
    target.mkdir()
    with duckdb.connect() as connection:
        for file in sorted(source.iterdir()):
            rows = connection.read_parquet(str(file)).select("key", "ms", "amount", "offset")
            rows.write_csv(str(target / f"{file.stem}.csv"), header=True)
    return target


def version() -> str:
    found = re.search(r"pathway==([\d.]+)", PROGRAM.read_text())
    return found[1] if found else ""
