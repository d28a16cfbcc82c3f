"""Real Spark and Delta against an S3 server on loopback, with the settings that infra/object-stores/s3 has."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessionlake.engine.spark import LITTLE_JAVA
from sessionlake.jars import copy_to, load_list
from tests.infra.s3_server import ROOT, s3_server

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

PIPELINE = """
[pipeline]
name = "clicks"
warehouse = "s3a://lake/clicks"
shards = 2
[source]
kind = "files"
path = "events"
format = "json"
[source.types]
user = "string"
at = "long"
price = "long"
[event]
key = "user"
time = "at"
time_unit = "s"
max_future_skew = "400000 hours"
[session]
gap = "30 minutes"
grace = "1 hour"
retention = "30 days"
[aggregates]
total = "sum(price)"
"""


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("s3")
    copy_to(load_list("s3"), root / ".jars" / "s3")
    settings = (ROOT / "infra" / "object-stores" / "s3" / "spark-defaults.conf").read_text()
    (root / "conf").mkdir()
    quick = "".join(f"{key} {value}\n" for key, value in LITTLE_JAVA.items()).replace("default", "extra")
    (root / "conf" / "spark-defaults.conf").write_text(settings.replace("/opt/sessionlake", str(root)) + quick)
    (root / "events").mkdir()
    (root / "pipeline.toml").write_text(PIPELINE)
    with s3_server(root) as env:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("s3_life.py")), str(root)],
            env={**env, "SPARK_CONF_DIR": str(root / "conf")},
            capture_output=True,
            text=True,
            check=False,
            timeout=560,
        )
    sys.stdout.write("".join(line for line in done.stderr.splitlines(keepends=True) if line.startswith("s3_life")))
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_stream_restart_late_events_compaction_and_forget_on_s3(lived: dict[str, Any]) -> None:
    # By hand from the events: ann's late one joins, bob's third extends his second, eve is forgotten.
    assert lived["sessions"] == [["ann", 0, 20, 13], ["bob", 0, 0, 1], ["bob", 400, 410, 12], ["zoe", 200, 230, 5]]


def test_of_two_drivers_that_write_one_commit_the_second_is_refused(lived: dict[str, Any]) -> None:
    store = lived["log_store"]
    assert store["class"] == "sessionlake.s3.ConditionalLogStore"
    # The third is the first one's retry after a lost answer: its commit is there, as it wrote it.
    assert store["outcome"] == ["written", "java.nio.file.FileAlreadyExistsException", "written"]
    assert store["content"] == ["first"]
