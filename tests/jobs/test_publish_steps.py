"""Several sinks in one process: one that fails holds up no other."""

import itertools
import logging
from dataclasses import dataclass, field
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import JobError
from sessionlake.jobs.publish import job as module
from sessionlake.jobs.publish import publish
from sessionlake.jobs.publish.job import Steps
from sessionlake.jobs.publish.steps import Step
from sessionlake.stream.run import run
from tests.jobs.publish_support import some_rows
from tests.support import make_config, write_rows


@dataclass
class Failing:
    """A sink whose first steps fail."""

    failures: int
    asked: int = 0
    every: str = "1 second"
    batches: list[int] = field(default_factory=list)

    def step(self, *, anew: bool = False) -> Step | None:
        del anew
        self.asked += 1
        if self.asked <= self.failures:
            raise JobError(f"failure {self.asked}")
        return Step(self.asked, 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_sink_that_fails_is_tried_again_after_longer_and_longer_pauses(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    sink = Failing(failures=8)
    steps = Steps("python", sink, lambda *_: None, "clicks")
    asked = []
    while not steps.made:
        before = sink.asked
        steps.turn(alone=False)
        asked += [clock[0]] if sink.asked > before else []
        clock[0] += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert (
        told[0] == "sessionlake: failure 1 (sink 'python' of 'clicks'; the others go on, and it is tried again in 2 s)"
    )
    assert len(told) == 8


def test_the_only_sink_ends_with_its_error(clock: list[float]) -> None:
    del clock
    with pytest.raises(JobError, match="failure 1"):
        Steps("python", Failing(failures=1), lambda *_: None, "clicks").turn(alone=True)


@pytest.mark.slow
def test_with_once_the_others_are_served_before_the_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def on_rows(rows, delivery):\n    raise ValueError\n")
    sink = {
        "python": {"call": "broken:on_rows"},
        "delta": {"path": "out"},
        "kafka": {"bootstrap_servers": "127.0.0.1:1", "topic": "t"},
    }
    session = {"gap": "10 seconds", "grace": "1 hour", "retention": "2 hours"}
    config = make_config(tmp_path, session=session, sink=sink, pipeline={"code": str(tmp_path)})
    write_rows(tmp_path, "0.json", some_rows(0))
    run(spark, config, once=True)
    with pytest.raises(Exception, match=r"^sink.kafka.bootstrap_servers: '127.0.0.1:1' does not answer"):
        publish(spark, config, once=True)
    assert len(deltalake.DeltaTable(f"{tmp_path}/out").to_pyarrow_table())
