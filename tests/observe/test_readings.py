"""The registry keeps to Prometheus' practice; readings come out as they went in."""

import re
import socket
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sessionlake.errors import MetricsError
from sessionlake.observe import metrics
from sessionlake.observe.metrics import BUCKETS, METRICS, Metric
from sessionlake.observe.readings import Readings, registry_of, served, write_textfile

UNITS = ("seconds", "bytes")
RESERVED = {"job", "instance", "le", "quantile", "__name__"}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def exposed(readings: Readings) -> Samples:
    return samples(generate_latest(registry_of(readings)).decode())


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_naming(metric: Metric) -> None:
    assert re.fullmatch(r"sessionlake_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(count|sum|bucket|info|created|ms|millis|minutes|kb|mb)$", metric.name)
    if re.search("duration|timestamp|phase", metric.name):
        assert re.search(r"_seconds(_total)?$", metric.name)
    assert metric.labels[0] == "pipeline"
    assert not RESERVED & set(metric.labels)
    assert metric.help
    assert metric.sources


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@given(st.lists(st.tuples(st.sampled_from(["accepted", "late"]), st.integers(0, 1000))))
def test_counters_add_up(added: list[tuple[str, int]]) -> None:
    readings = Readings("p")
    for outcome, value in added:
        readings.add(metrics.EVENTS, value, outcome)
    expected = {
        ("sessionlake_events_total", (("outcome", name), ("pipeline", "p"))): sum(v for n, v in added if n == name)
        for name in {name for name, _ in added}
    }
    assert exposed(readings) == expected


@given(st.lists(st.floats(0, 4000), min_size=1))
def test_histogram(values: list[float]) -> None:
    readings = Readings("p")
    for value in values:
        readings.observe(metrics.BATCH_SECONDS, value)
    found = exposed(readings)
    name, label = metrics.BATCH_SECONDS.name, ("pipeline", "p")
    for bound in (*BUCKETS, float("inf")):
        le = "+Inf" if bound == float("inf") else str(bound)
        assert found[f"{name}_bucket", (("le", le), label)] == sum(value <= bound for value in values)
    assert found[f"{name}_count", (label,)] == len(values)
    assert found[f"{name}_sum", (label,)] == pytest.approx(sum(values))


def test_replaced_readings_lose_what_is_gone() -> None:
    old, new = Readings("p"), Readings("p")
    old.set(metrics.TABLE_FILES, 3, "sessions")
    new.set(metrics.TABLE_FILES, 4, "late_events")
    old.replace(new)
    assert exposed(old) == {("sessionlake_table_files", (("pipeline", "p"), ("table", "late_events"))): 4}


def test_served() -> None:
    readings = Readings("p")
    with served(readings, "127.0.0.1", 0) as port:
        readings.set(metrics.WATERMARK, 12.5)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert samples(answer.read().decode()) == exposed(readings)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port))


def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(MetricsError, match=rf"^metrics\.port: 127\.0\.0\.1:{port} can't be listened on \(Address"),
            served(Readings("p"), "127.0.0.1", port),
        ):
            pass


def test_no_such_address() -> None:
    with (
        pytest.raises(MetricsError, match=r"metrics\.port: 203\.0\.113\.9:0 "),
        served(Readings("p"), "203.0.113.9", 0),
    ):
        pass


def test_textfile(tmp_path: Path) -> None:
    readings = Readings("p")
    readings.set(metrics.JOB_OK, 1, "compact")
    file = tmp_path / "new" / "a.prom"
    write_textfile(readings, file)
    assert samples(file.read_text()) == exposed(readings)
    assert [f.name for f in file.parent.iterdir()] == ["a.prom"]


def test_textfile_in_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        MetricsError, match=r"^metrics\.textfile: '.*/file/a\.prom' can't be written .*; choose a directory"
    ):
        write_textfile(Readings("p"), tmp_path / "file" / "a.prom")
