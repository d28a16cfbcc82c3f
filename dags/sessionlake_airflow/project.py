"""The pipelines that the DAGs are made for: those of a project, or one. Reads TOML only: it imports neither sessionlake nor Spark."""

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import or_
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetAny, CronDataIntervalTimetable, CronTriggerTimetable

from sessionlake_airflow.configs import PROJECT_FILE, configs_directory, default_config
from sessionlake_airflow.defaults import DAG_DEFAULTS, MAINTENANCE_POOL, SESSIONIZE_POOL, TASK_DEFAULTS

OFF = "off"
_MOST_BYTES = 1 << 20
MICRO, STREAM = MODES = "micro", "stream"
RUN = "run"
"""The pipeline itself among its jobs."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_OPERATORS = json.loads(Path(__file__).with_name("operators.json").read_text())
"""Of each operator the section, the choice in it, its table, and the jobs that its pipelines can be asked for."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, as far as DAGs must know it."""

    name: str
    config: str
    """Its file, by name in the configs' directory, or by path."""
    table: str = "results"
    """The table of its results, by which its asset is named."""
    jobs: tuple[str, ...] | None = None
    """The jobs that it can be asked for; all, if its file can't be seen from here."""
    run: str = MICRO
    """Whether it runs by a schedule, as a long task, or not by Airflow."""
    schedules: Mapping[str, str] = field(default_factory=dict)
    upstream: tuple[str, ...] = ()
    """The pipelines that it reads."""
    publishes: bool = False
    """Whether it has a sink to publish to."""
    pool: str = SESSIONIZE_POOL
    """The pool of its runs."""
    maintenance_pool: str = MAINTENANCE_POOL
    """The pool of its other jobs."""

    @property
    def results(self) -> Asset:
        """Its results changed; the event's extra has the job's counts."""
        return Asset(
            f"{self.name}.{self.table}", uri=f"delta://sessionlake/{self.name}/{self.table}", group="sessionlake"
        )

    @property
    def checked(self) -> Asset:
        """Its results changed and passed the quality checks: what dashboards and exports are to be scheduled on."""
        return Asset(f"{self.name}.checked", uri=f"delta://sessionlake/{self.name}/checked", group="sessionlake")

    def dag(self, job: str) -> dict[str, Any]:
        """Return the arguments of the DAG of a job that are not the job's own: its names, its pool, the defaults."""
        pool = self.pool if job == RUN else self.maintenance_pool
        return {
            "dag_id": f"{self.name}.{job}",
            "tags": ["sessionlake", f"pipeline:{self.name}", f"job:{job}"],
            **DAG_DEFAULTS,
            "default_args": {**TASK_DEFAULTS, "pool": pool},
        }

    def at(self, job: str, cron: str | None) -> CronTriggerTimetable | None:
        """Return when a job runs: at the config's times, else at those of `cron`, in UTC; None if by hand only."""
        text = self.schedules.get(job, cron)
        return None if text in (None, OFF) else CronTriggerTimetable(text, timezone="UTC")

    def after_results(self, job: str) -> Any:
        """Return when a job runs that follows the results: whenever they have changed, or at the config's times."""
        return self.at(job, None) if job in self.schedules else [self.results]

    def intervals(self, job: str, cron: str) -> CronDataIntervalTimetable | None:
        """Return the times, like `at`, of a job that works on the interval before each, from one to the next."""
        text = self.schedules.get(job, cron)
        return None if text == OFF else CronDataIntervalTimetable(text, timezone="UTC")

    def small_runs(self, cron: str) -> Any:
        """Return when small runs of the pipeline start: like `at`; of a pipeline that reads others, whenever one of those has changed."""
        if self.upstream and RUN not in self.schedules:
            first, *others = [one.results for one in pipelines() if one.name in self.upstream]
            return reduce(or_, others, AssetAny(first))
        text = self.schedules.get(RUN, cron)
        return None if text == OFF else CronTriggerTimetable(text, timezone="UTC", run_immediately=True)


def pipelines(job: str | None = None) -> list[Pipeline]:
    """Return the pipelines, those alone that can be asked for a job if one is named; one whose file is broken is left out (`broken`)."""
    return [one for one in _read()[0] if job is None or one.jobs is None or job in one.jobs]


def broken() -> list[str]:
    """Return a line for each file that is no pipeline's."""
    return list(_read()[1])


def project_config() -> str | None:
    """Return the directory of the project; None if there is no project."""
    directory = configs_directory()
    return str(directory) if (directory / PROJECT_FILE).is_file() else None


def _read() -> tuple[tuple[Pipeline, ...], tuple[str, ...]]:
    directory = configs_directory()
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix == ".toml")
        stamps = tuple((file, file.stat().st_mtime_ns if file.exists() else 0) for file in files)
    except OSError:
        stamps = ()  # the driver alone sees it
    return _found(directory, stamps, default_config(), os.environ.get("SESSIONLAKE_CONFIG"))


@lru_cache(maxsize=1)
def _found(
    directory: Path, stamps: tuple[tuple[Path, int], ...], default: str, _: str | None
) -> tuple[tuple[Pipeline, ...], tuple[str, ...]]:
    """Return pipelines and problems; kept for the DAG files that are parsed one after the other, until a file changes."""
    files = {file.name: file for file, _ in stamps}
    problems: list[str] = []
    project = _content(files.pop(PROJECT_FILE), problems) if PROJECT_FILE in files else None
    wanted = files if project is not None else {Path(default).name: directory / default}
    contents = {
        file: content
        for file, path in wanted.items()
        if (project is not None or path.exists()) and (content := _content(path, problems)) is not None
    }
    if not contents and not problems:
        return (Pipeline(Path(default).stem, default),), ()
    made = list(_pipelines(contents, project or {}, directory, problems))
    return tuple(made), tuple(problems)


def _content(file: Path, problems: list[str]) -> dict[str, Any] | None:
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            raise ValueError("no regular file of at most 1 MiB")  # a pipe would be waited for
        return tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{file.name}: is no valid TOML ({error}); mend it, `sessionlake check {file}` says more")
        return None


def _pipelines(
    contents: Mapping[str, dict[str, Any]], project: Mapping[str, Any], directory: Path, problems: list[str]
) -> Iterator[Pipeline]:
    in_project, homes = bool(project) or (directory / PROJECT_FILE).is_file(), {}
    operators: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    times: dict[str, dict[str, Any]] = {}
    for file, content in contents.items():
        name = _section(content, "pipeline").get("name", Path(file).stem)
        operator = next((one for one in _OPERATORS if _is_of(one, content)), None)
        airflow = {**_section(project, "airflow"), **_section(content, "airflow")}
        airflow["schedules"] = {**_schedules(project), **_schedules(content)}
        wrong = _wrong(name, names.values(), operator, airflow)
        if operator is None or wrong is not None:
            problems.append(f"{file}: {wrong}; `sessionlake check {directory / file}` says more")
            continue
        operators[file], names[file], times[file] = operator, name, airflow
        root = str(_section(project, "pipeline").get("warehouse", "warehouse")).rstrip("/")
        warehouse = _section(content, "pipeline").get("warehouse", f"{root}/{name}" if in_project else None)
        if isinstance(warehouse, str):
            homes[f"{_place(warehouse, directory)}/"] = name
    for file, operator in operators.items():
        content, name = contents[file], names[file]
        places = {_place(path, directory) for path in _table_paths(content, _section(project, "connections"))}
        around = [max((home for home in homes if place.startswith(home)), key=len, default=None) for place in places]
        upstream = {homes[home] for home in around if home is not None}
        known = {**{one: one for one in names.values()}, **names}
        upstream |= {known[one] for one in _named_pipelines(content) if one in known}
        yield Pipeline(
            name,
            file,
            operator["table"],
            tuple(operator["jobs"]),
            times[file].get("run", MICRO),
            times[file]["schedules"],
            tuple(sorted(upstream - {name})),
            any(isinstance(one, dict) for one in _section(content, "sink").values()),
            times[file].get("pool", SESSIONIZE_POOL),
            times[file].get("maintenance_pool", MAINTENANCE_POOL),
        )


def _is_of(operator: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    section = content.get(operator["section"])
    if not isinstance(section, dict):
        return False
    key, value = operator["choice"]
    return not key or section.get(key, operator["default"]) == value


def _wrong(name: Any, names: Collection[str], operator: Any, airflow: Mapping[str, Any]) -> str | None:
    """Return what keeps a file from being a pipeline with DAGs, so that it does not keep others from theirs; None if nothing does."""
    if operator is None:
        return "has no operator's section"
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in names:
        return f"has the name {name!r}, which another one has or no pipeline can have"
    if airflow.get("run", MICRO) not in (*MODES, OFF):
        return f"airflow.run: {airflow['run']!r} is not {MICRO!r}, {STREAM!r} or {OFF!r}"
    for key in ("pool", "maintenance_pool"):
        if key in airflow and not (isinstance(airflow[key], str) and airflow[key]):
            return f"airflow.{key}: {airflow[key]!r} is no name of a pool"
    for job, text in airflow["schedules"].items():
        try:
            if text != OFF:
                CronTriggerTimetable(str(text), timezone="UTC").validate()
        except Exception as error:  # noqa: BLE001 (Airflow's own, of its scheduler's half, which costs a second to import)
            return f"airflow.schedules.{job}: {text!r} is no schedule ({error})"
    return None


def _schedules(content: Mapping[str, Any]) -> dict[str, Any]:
    return _section(_section(content, "airflow"), "schedules")


def _table_paths(content: Any, connections: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the sources that are Delta tables, those of a join's sides among them."""
    if isinstance(content, dict):
        named = content.get("connection")
        merged = {**(_section(connections, named) if isinstance(named, str) else {}), **content}
        if merged.get("kind") == "delta" and isinstance(merged.get("path"), str):
            yield merged["path"]
        for inner in content.values():
            yield from _table_paths(inner, connections)


def _named_pipelines(content: Any) -> Iterator[str]:
    """Yield the pipelines, by name or file, whose results are a source, or whose table is looked up."""
    if isinstance(content, dict):
        lookups = content.get("lookup")
        tables = [one.get("table") for one in lookups if isinstance(one, dict)] if isinstance(lookups, list) else []
        yield from (os.path.normpath(one) for one in (content.get("of"), *tables) if isinstance(one, str))
        for inner in content.values():
            yield from _named_pipelines(inner)


def _section(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name, {})
    return found if isinstance(found, dict) else {}


def _place(path: str, directory: Path) -> str:
    if "://" in path and not path.startswith("file:"):
        return re.sub(r"^s3[an]://", "s3://", path).rstrip("/")
    return os.path.normpath(directory.resolve() / re.sub(r"^file:(//)?", "", path))
