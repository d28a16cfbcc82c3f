"""The process that workers are forked from has imported what all operators need, and nothing that takes long beside."""

import inspect
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pyspark.daemon
import pytest

from sessionlake.engine import daemon

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


@pytest.mark.parametrize(("error", "told"), [(BrokenPipeError(32, "Broken pipe"), False), (OSError("other"), True)])
def test_a_worker_whose_java_has_gone_prints_nothing(
    capsys: pytest.CaptureFixture[str], error: OSError, *, told: bool
) -> None:
    assert "traceback.print_exc()" in inspect.getsource(pyspark.daemon), "it prints errors in another way now"
    pysparks: Any = SimpleNamespace(worker=lambda: 0, traceback=None)
    daemon.quiet(pysparks)
    try:
        raise error
    except OSError:
        pysparks.traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) is told
