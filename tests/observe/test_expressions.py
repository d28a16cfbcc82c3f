"""Dashboard and alerts ask only for what the registry defines, and the docs explain it."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import generate_latest

from sessionlake.cli.metrics import PORT
from sessionlake.observe.metrics import METRICS, Metric
from sessionlake.observe.readings import Readings, registry_of

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "infra" / "observability" / "prometheus"
DASHBOARD = json.loads((ROOT / "infra" / "observability" / "grafana" / "sessionlake.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]
DOCS = (ROOT / "docs" / "observability.md").read_text()
SCRAPED = {"job", "instance"}


def names(metric: Metric) -> tuple[str, ...]:
    """Return the names by which a query asks for a metric: of a histogram its three series."""
    if metric.kind != "histogram":
        return (metric.name,)
    return tuple(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))


LABELS = {
    "up": SCRAPED,
    **{
        name: {*metric.labels, *SCRAPED, *({"le"} if name.endswith("_bucket") else ())}
        for metric in METRICS
        for name in names(metric)
    },
}
VARIABLES = {"$pipeline": ".*", "$__rate_interval": "1m"}


def parsed(text: str) -> Any:
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    return promql.parse(text)


def selectors(expression: Any) -> list[Any]:
    found: list[Any] = []

    def see(node: Any) -> None:
        if isinstance(node, promql.VectorSelector):
            found.append(node)

    promql.walk(expression, see)
    return found


def grouped(expression: Any) -> list[tuple[Any, set[str]]]:
    """Return each aggregation and binary operation that names labels, with these; the outer before the inner ones."""
    found: list[tuple[Any, set[str]]] = []

    def see(node: Any) -> None:
        if isinstance(node, promql.AggregateExpr) and node.modifier:
            found.append((node, set(node.modifier.labels)))
        if isinstance(node, promql.BinaryExpr) and node.modifier and node.modifier.matching:
            found.append((node, set(node.modifier.matching.labels)))

    promql.walk(expression, see)
    return found


EXPRESSIONS = [
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in RULES),
    *(pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}") for panel, target in TARGETS),
]


def unknown(text: str) -> list[str]:
    """Return what an expression asks for that no metric has."""
    expression = parsed(text)
    wrong = []
    for selector in selectors(expression):
        if selector.name not in LABELS:
            wrong.append(selector.name)
        else:
            wrong += [m.name for m in selector.matchers.matchers if m.name not in LABELS[selector.name]]
    for node, labels in grouped(expression):
        for selector in selectors(node):
            wrong += sorted(labels - LABELS.get(selector.name, labels))
    return wrong


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_known_metrics_and_labels(text: str) -> None:
    assert selectors(parsed(text))
    assert unknown(text) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("sessionlake_event_total", ["sessionlake_event_total"]),
        ('rate(sessionlake_events_total{outcom="late"}[1m])', ["outcom"]),
        ("max by (table) (sessionlake_store_bytes)", ["table"]),
        ("sum without (outcome) (sessionlake_store_bytes)", ["outcome"]),
        ("sessionlake_store_bytes / on (tables) sessionlake_table_bytes", ["tables", "tables"]),
        ("sessionlake_batch_duration_seconds", ["sessionlake_batch_duration_seconds"]),
    ],
)
def test_the_check_sees(text: str, wrong: list[str]) -> None:
    assert unknown(text) == wrong


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {selector.name for _, target in TARGETS for selector in selectors(parsed(target["expr"]))}
    assert [metric.name for metric in METRICS if not shown & set(names(metric))] == []


def labels_left(expression: Any) -> set[str]:
    """Return the labels that the outermost aggregation keeps, of a binary operation that of its left side."""
    outermost = next(node for node, _ in grouped(expression) if isinstance(node, promql.AggregateExpr))
    assert outermost.modifier.type == promql.AggModifierType.By
    return set(outermost.modifier.labels)


@pytest.mark.parametrize("target", [pytest.param(t, id=f"{p['title']} {t['refId']}") for p, t in TARGETS])
def test_legends_name_labels_that_are_left(target: dict[str, Any]) -> None:
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels_left(parsed(target["expr"]))


def test_labels_of_an_inner_aggregation_are_not_left() -> None:
    nested = parsed("max by (pipeline) (sum by (pipeline, job) (sessionlake_store_bytes))")
    assert labels_left(nested) == {"pipeline"}


def test_dashboard_is_whole() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert DASHBOARD["schemaVersion"] >= 41
    assert {v["name"]: v["type"] for v in DASHBOARD["templating"]["list"]} == {
        "datasource": "datasource",
        "pipeline": "query",
    }
    assert [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"] == [
        "Now", "Throughput", "Latency and lag", "Correctness", "State", "Jobs", "Followers",
    ]  # fmt: skip
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


def test_panels_do_not_overlap() -> None:
    seen: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        p = panel["gridPos"]
        for cell in ((x, y) for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])):
            assert seen.setdefault(cell, panel["title"]) == panel["title"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_is_actionable(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    notes = rule["annotations"]
    assert notes["summary"]
    assert notes["description"]
    page, anchor = notes["runbook_url"].split("#")
    assert (page, anchor) == ("docs/observability.md", rule["alert"].lower())
    assert f"### {rule['alert']}\n" in DOCS


def test_scrape_jobs_are_those_of_the_alerts() -> None:
    jobs = {job["job_name"] for job in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]}
    asked = {
        matcher.value
        for rule in RULES
        for selector in selectors(parsed(rule["expr"]))
        for matcher in selector.matchers.matchers
        if matcher.name == "job"
    }
    assert asked
    assert asked <= jobs


def test_compose_scrapes_the_port_of_its_pipeline() -> None:
    compose = ROOT / "infra" / "compose"
    port = tomllib.loads((compose / "pipelines" / "clicks.toml").read_text())["metrics"]["port"]
    jobs = yaml.safe_load((compose / "prometheus.yaml").read_text())["scrape_configs"]
    services = yaml.safe_load((compose / "compose.yaml").read_text())["services"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    # SessionlakeStreamDown would fire while sessionize_stream is off, as it is at first.
    assert targets == {"sessionlake-tables": [f"metrics:{PORT}"], "stream": [f"airflow-scheduler:{port}"]}
    assert {"airflow-scheduler", "metrics"} <= set(services)


def test_docs_have_each_metric_as_the_registry_has_it() -> None:
    rows = re.findall(r"^\| `(sessionlake_\w+)` \| (.*?) \| (.*?) \| (.*?) \| (.*) \|$", DOCS, re.MULTILINE)
    assert rows == [
        (m.name, ", ".join(f"`{label}`" for label in m.labels[1:]) or "-", m.kind, ", ".join(m.sources), m.help)
        for m in METRICS
    ]


def promtool() -> str:
    found = shutil.which("promtool") or shutil.which("promtool", path=str(ROOT / ".tools" / "bin"))
    if not found:
        pytest.skip("no promtool: `make promtool` fetches it")
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("test", "rules", "alerts_test.yml"),
        ("check", "config", "prometheus.yml"),
        ("check", "config", "--syntax-only", "../../compose/prometheus.yaml"),
    ],
)
def test_promtool(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([promtool(), *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_in_the_exposition() -> None:
    readings = Readings("p")
    for metric in METRICS:
        if metric.kind == "histogram":
            readings.observe(metric, 1.5)
        else:
            readings.set(metric, 1, *("x" for _ in metric.labels[1:]))
    text = generate_latest(registry_of(readings))
    done = subprocess.run([promtool(), "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_each_alert_is_tried() -> None:
    tried = {
        case["alertname"]
        for test in yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert tried == {rule["alert"] for rule in RULES}
