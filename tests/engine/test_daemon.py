"""The process that workers are forked from has imported what all operators need, and nothing that takes long beside."""

import json
import subprocess
import sys

_CODE = """
import json, sys
from sessionlake.engine import daemon
daemon.warm_up()
print(json.dumps(sorted(sys.modules)))
"""


def test_workers_are_warm_and_lean() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert {f"sessionlake.operators.{name}.operator" for name in ("sessions", "windows", "joins", "keyed")} <= loaded
    assert not loaded & {"delta", "deltalake", "duckdb", "sqlglot", "pydantic", "click"}
