"""What compose and Kubernetes start is there, agrees with itself, and is safe to start."""

import json
import re
import shutil
import subprocess
import sys
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click import Context

from sessionlake.cli import main
from sessionlake.cli.registry import COMMANDS
from sessionlake.config.load import load_config
from tests.infra.infra_files import (
    COMPOSE,
    HOME,
    INFRA,
    KUBERNETES,
    OVERLAYS,
    ROOT,
    commands,
    kustomizations,
    load_all,
    pods,
    properties,
    resources,
    sessionlake_calls,
)

sys.path.insert(0, str(ROOT / "dags"))
from sessionlake_airflow.submit import master_of

CONFIGS = {"compose": INFRA / "compose" / "pipelines" / "clicks.toml"} | {
    overlay: KUBERNETES / "overlays" / overlay / "clicks.toml" for overlay in OVERLAYS
}
SCHEMES = {"compose": "s3a", "s3": "s3a", "adls": "abfss", "gcs": "gs"}
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PODS = dict(pods())


class Spark:
    """An Airflow connection, as JSON in the environment gives it."""

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.conn_id, self.conn_type, self.host, self.port = (
            "spark_default",
            given["conn_type"],
            given["host"],
            given["port"],
        )
        self.extra_dejson = given["extra"]


def parse(words: list[str]) -> None:
    """Let click parse a call of the command line, or of the file that stands for it."""
    if words[0].endswith(".py"):
        assert words[0] == f"{HOME}/pipelines/command.py"
        words = words[1:]
    command = main.get_command(Context(main), words[0])
    command.make_context(words[0], list(words[1:]))


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}


def test_each_call_of_sessionlake_is_one_that_the_command_line_takes() -> None:
    calls = dict(sessionlake_calls())
    assert {"StatefulSet/stream", "executors", "CronJob/compact", "CronJob/quality"} <= set(calls)
    for words in calls.values():
        parse(words)
    with pytest.raises(Exception, match="No such option"):
        parse(["compact", "c.toml", "--no-apply"])


@pytest.mark.parametrize("name", CONFIGS)
def test_pipeline_config_loads_and_lies_on_its_object_store(name: str) -> None:
    config = load_config(CONFIGS[name])
    assert config.warnings() == []
    assert config.pipeline.warehouse.startswith(f"{SCHEMES[name]}://")
    assert config.pipeline.store.startswith("/var/lib/sessionlake/")
    assert config.pipeline.archive or config.source.kind != "kafka"  # else its nightly backfill has nothing to read
    metrics = next(p for c in PODS["StatefulSet/stream"]["containers"] for p in c["ports"] if p["name"] == "metrics")
    assert (config.metrics.host, config.metrics.port) == ("0.0.0.0", metrics["containerPort"])  # noqa: S104 (a container)


def test_jobs_on_pods_of_their_own_leave_corrections_to_the_stream() -> None:
    takes_apply = {
        name
        for name in COMMANDS
        if any("--no-apply" in p.secondary_opts for p in main.get_command(Context(main), name).params)
    }
    jobs = {name: words for name, words in commands() if name.startswith("CronJob/")}
    assert len(jobs) == 5
    for name, words in jobs.items():
        if name.removeprefix("CronJob/") in takes_apply:
            assert "--no-apply" in " ".join(words), name
        assert "RUN_ID" in " ".join(words), name


def backfill(run_id: str, tmp_path: Path) -> list[str]:
    stub = tmp_path / "sessionlake"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    script = next(words[-1] for name, words in commands() if name == "CronJob/backfill")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RUN_ID": run_id}
    done = subprocess.run(["bash", "-ec", script], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_backfill_takes_the_day_before_the_one_it_was_due(tmp_path: Path) -> None:
    due = int(datetime(2026, 3, 1, 3, 0, tzinfo=UTC).timestamp()) // 60
    words = backfill(f"backfill-{due}", tmp_path)
    parse(words)
    assert words[-4:] == ["--from", "2026-02-28", "--to", "2026-03-01"]
    assert words[words.index("--run-id") + 1] == f"backfill-{due}"


def test_backfill_by_hand_takes_yesterday(tmp_path: Path) -> None:
    first, last = (datetime.fromisoformat(backfill("backfill-by-hand", tmp_path)[at]) for at in (-3, -1))
    assert (last - first).days == 1
    assert abs((datetime.now(UTC).replace(tzinfo=None) - last).days) <= 1


def test_one_stream() -> None:
    streams = [(name, r) for name, r in ((r["metadata"]["name"], r) for _, r in resources()) if name == "stream"]
    kinds = {resource["kind"] for _, resource in streams}
    assert kinds == {"Service", "StatefulSet"}
    workload = next(resource for _, resource in streams if resource["kind"] == "StatefulSet")
    assert workload["spec"]["replicas"] == 1
    assert {claim["spec"]["accessModes"][0] for claim in workload["spec"]["volumeClaimTemplates"]} == {
        "ReadWriteOncePod"
    }
    removed = {(p["kind"], p["metadata"]["name"]) for p in load_all(KUBERNETES / "airflow" / "instead.yaml")}
    base = {(r["kind"], r["metadata"]["name"]) for file, r in resources() if file.parent.name == "base"}
    assert removed == {one for one in base if one[0] in {"CronJob", "StatefulSet"} or one == ("Service", "stream")}
    for _, resource in resources():
        if resource["kind"] == "CronJob":
            assert resource["spec"]["concurrencyPolicy"] == "Forbid"
            assert resource["spec"]["timeZone"] == "Etc/UTC"


@pytest.mark.parametrize("name", PODS)
def test_pod_is_hardened_and_bounded(name: str) -> None:
    pod = PODS[name]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/tmp", "/home/sessionlake"} <= mounted  # noqa: S108 (where Java, Python and Hadoop write)
        assert context["capabilities"] == {"drop": ["ALL"]}
        if not name.startswith("Pod/"):  # Spark sets an executor's
            assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
            assert container["resources"]["requests"]["cpu"]


@pytest.mark.parametrize("name", PODS)
def test_pod_mounts_and_ports_are_there(name: str) -> None:
    pod = PODS[name]
    workload = next(r for _, r in resources() if f"{r['kind']}/{r['metadata']['name']}" == name)
    claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
    volumes = claims | {volume["name"] for volume in pod.get("volumes", [])}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
        ports = {port["name"] for port in container.get("ports", [])}
        probed = {
            probe["httpGet"]["port"] for key, probe in container.items() if key.endswith("Probe") and "httpGet" in probe
        }
        assert probed <= ports


def test_services_lead_to_pods() -> None:
    workloads = [r for _, r in resources() if r["kind"] in {"Deployment", "StatefulSet"}]
    services = [r for _, r in resources() if r["kind"] == "Service"]
    assert len(services) == 3
    for service in services:
        found = [
            w
            for w in workloads
            if service["spec"]["selector"].items() <= w["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert len(found) == 1, service["metadata"]["name"]
        ports = {p["name"] for c in found[0]["spec"]["template"]["spec"]["containers"] for p in c["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


@pytest.mark.parametrize("component", ["base", "airflow"])
def test_network_policies_let_prometheus_in_to_a_port_that_is_there(component: str) -> None:
    policies = {r["metadata"]["name"]: r for file, r in resources() if r["kind"] == "NetworkPolicy"}
    policies["metrics"] = deepcopy(policies["metrics"])
    if component == "airflow":
        (patch,) = load_all(KUBERNETES / "airflow" / "network.yaml")
        policies[patch["metadata"]["name"]]["spec"] |= patch["spec"]
    here = [
        r["spec"]["template"]
        for file, r in resources()
        if file.parent.name == component and "template" in r.get("spec", {})
    ]
    for policy in policies.values():
        labels = policy["spec"]["podSelector"].get("matchLabels", {}).items()
        chosen = [pod for pod in here if labels <= pod["metadata"].get("labels", {}).items()]
        assert chosen
        for named in (port for rule in policy["spec"]["ingress"] for port in rule.get("ports", [])):
            for pod in chosen:
                ports = {p["name"]: p["containerPort"] for c in pod["spec"]["containers"] for p in c["ports"]}
                assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(ports[named["port"]])


def test_config_maps_and_accounts_are_there() -> None:
    generated = {g["name"] for file in kustomizations() for g in load_all(file)[0].get("configMapGenerator", [])}
    accounts = {r["metadata"]["name"] for _, r in resources() if r["kind"] == "ServiceAccount"}
    assert accounts == {"sessionlake"}
    for name, pod in PODS.items():
        used = {v["configMap"]["name"] for v in pod.get("volumes", []) if "configMap" in v}
        used |= {f["configMapRef"]["name"] for c in pod["containers"] for f in c.get("envFrom", [])}
        assert used <= generated, name
        assert pod["serviceAccountName"] in accounts, name


@pytest.mark.parametrize("file", kustomizations(), ids=lambda file: str(file.parent.relative_to(KUBERNETES)))
def test_kustomization_names_all_that_lies_beside_it(file: Path) -> None:
    content = load_all(file)[0]
    named = {n for n in [*content.get("resources", []), *content.get("components", [])] if not n.startswith("..")}
    named |= {patch["path"] for patch in content.get("patches", []) if "path" in patch}
    named |= {n for generator in content.get("configMapGenerator", []) for n in generator.get("files", [])}
    assert named == {other.name for other in file.parent.iterdir()} - {"kustomization.yaml"}
    for folder in [*content.get("resources", []), *content.get("components", [])]:
        if folder.startswith(".."):
            assert (file.parent / folder / "kustomization.yaml").is_file()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_chooses_settings_and_jars_of_its_object_store(overlay: str) -> None:
    content = load_all(KUBERNETES / "overlays" / overlay / "kustomization.yaml")[0]
    store = next(g for g in content["configMapGenerator"] if g["name"] == "object-store")
    assert f"SPARK_CONF_DIR={HOME}/infra/object-stores/{overlay}" in store["literals"]
    settings = properties(INFRA / "object-stores" / overlay / "spark-defaults.conf")
    assert settings["spark.driver.extraClassPath"] == f"{HOME}/.jars/{overlay}/*"
    assert settings["spark.executor.extraClassPath"] == settings["spark.driver.extraClassPath"]
    assert f"spark.delta.logStore.{SCHEMES[overlay]}.impl" in settings
    assert not [key for key in settings if re.search(r"secret|password|access\.key|account\.key", key)]


@pytest.mark.parametrize("component", [None, "executors", "airflow"])
@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.skipif(not shutil.which("kustomize"), reason="no kustomize on PATH; the single files are checked above")
def test_kustomize_builds(overlay: str, component: str | None, tmp_path: Path) -> None:
    import kubernetes_validate
    import yaml

    shutil.copytree(KUBERNETES, tmp_path / "k")
    file = tmp_path / "k" / "overlays" / overlay / "kustomization.yaml"
    if component:
        file.write_text(f"{file.read_text()}components:\n  - ../../{component}\n")
    done = subprocess.run(["kustomize", "build", file.parent], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [r for r in yaml.safe_load_all(done.stdout) if r]
    for resource in built:
        kubernetes_validate.validate(resource, "1.33", strict=True)
    workloads = {f"{r['kind']}/{r['metadata']['name']}": json.dumps(r) for r in built if "template" in json.dumps(r)}
    images = {name: set(re.findall(r'"image": "([^"]+)"', text)) for name, text in workloads.items()}
    assert {image for found in images.values() for image in found} == {"registry.example.com/sessionlake:0.2.0"}
    writer = "airflow-scheduler" if component == "airflow" else "stream"
    assert [name for name in images if name.startswith("StatefulSet/")] == [f"StatefulSet/{writer}"]
    assert '"value": "registry.example.com/sessionlake:0.2.0"' in workloads[f"StatefulSet/{writer}"]


def test_airflow_connections_are_spark_masters() -> None:
    given = SERVICES["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"]
    assert master_of(Spark(given)) == "spark://spark-master:7077"
    assert Spark(given).extra_dejson["conf"]["spark.driver.host"] == SERVICES["airflow-scheduler"]["hostname"]
    scheduler = environment(PODS["StatefulSet/airflow-scheduler"]["containers"][0])
    kubernetes = Spark(scheduler["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert master_of(kubernetes) == "k8s://https://kubernetes.default.svc:443"
    mounts = {m["mountPath"] for m in PODS["StatefulSet/airflow-scheduler"]["containers"][0]["volumeMounts"]}
    conf = kubernetes.extra_dejson["conf"]
    assert str(Path(conf["spark.kubernetes.executor.podTemplateFile"]).parent) in mounts
    template = next(pod for name, pod in PODS.items() if name == "Pod/template")
    assert conf["spark.kubernetes.executor.podTemplateContainerName"] == template["containers"][0]["name"]


AUTHENTICATED = {"spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"}


def test_processes_of_a_spark_application_know_each_other_and_hide_what_they_say() -> None:
    compose = Spark(SERVICES["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"]).extra_dejson["conf"]
    scheduler = environment(PODS["StatefulSet/airflow-scheduler"]["containers"][0])
    kubernetes = Spark(scheduler["AIRFLOW_CONN_SPARK_DEFAULT"]).extra_dejson["conf"]
    executors = properties(KUBERNETES / "executors" / "spark-defaults.conf")
    for conf in (compose, kubernetes, executors):
        assert {conf[name] for name in AUTHENTICATED} == {"true"}


def test_a_standalone_cluster_has_one_secret_that_is_in_no_command_line() -> None:
    reference = "${SPARK_SECRET:?fill in .env}"
    conf = Spark(SERVICES["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"]).extra_dejson["conf"]
    assert conf["spark.authenticate.secret"] == reference
    for name, options in {"spark-master": "SPARK_MASTER_OPTS", "spark-worker-1": "SPARK_WORKER_OPTS"}.items():
        given = SERVICES[name]["environment"]
        assert given["_SPARK_AUTH_SECRET"] == reference
        assert {"-Dspark.authenticate=true", "-Dspark.network.crypto.enabled=true"} <= set(given[options].split())
        assert "SPARK_SECRET" not in given[options] + " ".join(SERVICES[name]["command"])


def test_containers_of_compose_gain_no_rights() -> None:
    for name, service in SERVICES.items():
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service.get("cap_drop") == ["ALL"] or name == "object-store", name  # its image starts as root


def test_keys_of_the_object_store_are_where_it_is_used() -> None:
    have = {name for name, service in SERVICES.items() if "AWS_SECRET_ACCESS_KEY" in service.get("environment", {})}
    workers = {"spark-worker-1", "spark-worker-2"}
    assert have == {"object-store", "object-store-init", "airflow-scheduler", "metrics", *workers}


def test_airflow_on_kubernetes_can_alert() -> None:
    for name in ("StatefulSet/airflow-scheduler", "Deployment/airflow-dag-processor"):
        (url,) = [e for e in PODS[name]["containers"][0]["env"] if e["name"] == "SESSIONLAKE_ALERT_URL"]
        assert url["valueFrom"]["secretKeyRef"] == {"name": "airflow", "key": "alert-url", "optional": True}


def test_a_stream_leaves_cores_of_compose_to_the_jobs() -> None:
    conf = Spark(SERVICES["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"]).extra_dejson["conf"]
    workers = [s["command"] for s in SERVICES.values() if s.get("hostname", "").startswith("spark-worker")]
    cores = sum(int(command[command.index("--cores") + 1]) for command in workers)
    assert conf["spark.executor.cores"] <= conf["spark.cores.max"] <= cores / 2


def test_dags_run_without_being_switched_on() -> None:
    name = "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"
    (airflow,) = (g for g in load_all(KUBERNETES / "airflow" / "kustomization.yaml")[0]["configMapGenerator"])
    assert f"{name}=False" in airflow["literals"]
    for service in ("airflow-scheduler", "airflow-dag-processor"):
        assert SERVICES[service]["environment"][name] == "False"


def test_airflow_has_the_pools_of_the_dags() -> None:
    sys.path.insert(0, str(INFRA / "airflow"))
    from settings import POOLS

    compose = SERVICES["airflow-init"]["command"][-1]
    kubernetes = " ".join(PODS["Job/airflow-migrate"]["containers"][0]["args"])
    for name, (slots, _) in POOLS.items():
        assert f"airflow pools set {name} {slots} " in compose
        assert f"airflow pools set {name} {slots} " in kubernetes


def test_compose_services_wait_for_services_that_are_there_and_healthy() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], (name, other)
            else:
                assert how["condition"] == "service_completed_successfully"
                assert SERVICES[other].get("restart", "no") == "no", (name, other)
        assert "healthcheck" in service or service.get("restart", "no") == "no", name


def test_compose_volumes_are_declared_and_used() -> None:
    used = {v.split(":")[0] for s in SERVICES.values() for v in s.get("volumes", []) if v[0] not in "./"}
    assert used == set(COMPOSE["volumes"])
    stores = [
        v for s in SERVICES.values() for v in s.get("volumes", []) if s.get("hostname", "").startswith("spark-worker")
    ]
    assert len(stores) == len(set(stores)) == 2


def test_compose_publishes_on_the_loopback_address_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) >= 4
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_compose_takes_each_secret_from_the_environment() -> None:
    text = (INFRA / "compose" / "compose.yaml").read_text()
    example = (INFRA / "compose" / ".env.example").read_text()
    named = set(re.findall(r"(?<!\$)\$\{([A-Z0-9_]+)", text))
    offered = dict(line.split("=", 1) for line in example.splitlines() if re.match(r"[A-Z0-9_]+=", line))
    assert set(offered) == named
    assert set(offered.values()) == {""}
    required = set(re.findall(r"\$\{([A-Z0-9_]+):\?", text))
    assert named - required == {"SESSIONLAKE_ALERT_URL"}


def test_pipelines_of_compose_read_its_broker_and_store() -> None:
    config = load_config(CONFIGS["compose"])
    host, port = config.source.bootstrap_servers.split(":")
    assert f"PLAINTEXT://{host}:{port}" in SERVICES[host]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert config.source.topic in SERVICES["kafka-init"]["command"]
    bucket = config.pipeline.warehouse.split("/")[2]
    assert f"create_dir('{bucket}')" in SERVICES["object-store-init"]["command"][-1]
    endpoint = SERVICES["spark-worker-1"]["environment"]["AWS_ENDPOINT_URL"]
    host, port = endpoint.removeprefix("http://").split(":")
    assert f"-s3.port={port}" in SERVICES[host]["command"]
    assert f"-ip={host}" in SERVICES[host]["command"]
