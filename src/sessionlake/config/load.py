"""A pipeline's TOML config: validated once, here; every error names the key, the value and what to write instead."""

import re
import tomllib
from pathlib import Path
from typing import Any, cast

from pydantic import Field, SerializeAsAny, ValidationError

from sessionlake.config.absent import Absent
from sessionlake.config.durations import MINUTE_US, format_duration, parse_duration
from sessionlake.config.explain import explain_invalid
from sessionlake.config.jobs import CompactSection, ExpireSection, QualitySection, check_quality
from sessionlake.config.names import EVENT_INPUT, EVENTS, RESERVED
from sessionlake.config.observed import LineageSection, MetricsSection, check_observed
from sessionlake.config.operators import OPERATORS, section_class
from sessionlake.config.paths import check_store_path, expanded, unset_variables
from sessionlake.config.quarantine import RATE, RULE
from sessionlake.config.sections import EventSection, OperatorSection, PipelineSection, Section
from sessionlake.config.serve import ServeSection
from sessionlake.config.sessions import QuarantineSection, SessionSection
from sessionlake.config.source import (
    SinkSection,
    SourceSection,
    check_references,
    check_sink,
    check_source,
    with_absolute_secrets,
)
from sessionlake.config.ttl import SessionTtlSection
from sessionlake.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Config(Section):
    """A validated config; paths are absolute or URIs, durations are in microseconds where the name says so."""

    pipeline: PipelineSection
    source: SourceSection = Field(default=cast("SourceSection", Absent("source")))
    """What is read; of a join each side has its own (`inputs`)."""
    event: EventSection = Field(default=cast("EventSection", Absent("event")))
    session: SessionSection | None = None
    other: dict[str, SerializeAsAny[OperatorSection]] = Field(default={})
    """The section of another operator than sessions, by its name; where it stands, `session` does not."""
    aggregates: dict[str, str] = Field(default={})
    quarantine: QuarantineSection | None = None
    """Which sessions are kept apart from what is shown; none where it is left out."""
    ttl: SessionTtlSection | None = None
    """When closed sessions expire; of a keyed table its section has that."""
    compact: CompactSection = CompactSection()
    quality: QualitySection = QualitySection()
    expire: ExpireSection = ExpireSection()
    sink: SinkSection = SinkSection()
    metrics: MetricsSection = MetricsSection()
    lineage: LineageSection = LineageSection()
    serve: ServeSection = ServeSection()
    directory: str = "."
    """Directory of the config file."""

    @property
    def operator(self) -> str:
        """The name of the operator: that of the section that says what is computed."""
        return next(iter(self.other), "session")

    @property
    def section(self) -> OperatorSection:
        """The section that says what is computed."""
        return self.other[self.operator] if self.other else self.sessions

    @property
    def sessions(self) -> SessionSection:
        """The section of sessions; ConfigError where the pipeline computes something else."""
        self.require("session")
        assert self.session is not None  # noqa: S101 (it is the section that is required)
        return self.session

    @property
    def inputs(self) -> dict[str, "Config"]:
        """The event inputs by name, each as the config of a pipeline that has no other: with its source and its event."""
        sides = self.section.sides
        if not sides:
            return {EVENT_INPUT: self}
        return {name: self.model_copy(update={"source": s.source, "event": s.event}) for name, s in sides.items()}

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """By event input the columns that make the key; none where all events have one."""
        if self.section.sides:
            return dict(self.section.keys)
        return {EVENT_INPUT: () if self.event.key is None else (self.event.key,)}

    @property
    def with_ids(self) -> bool:
        """Whether events of any input have ids."""
        return any(side.event.id is not None for side in self.inputs.values())

    @property
    def topics(self) -> list[str]:
        """The topics that are read."""
        return [side.source.topic or "" for side in self.inputs.values() if side.source.kind == "kafka"]

    @property
    def event_at(self) -> str:
        """Where the section of the events stands."""
        return self.source.AT.removesuffix("source") + "event"

    def require(self, operator: str) -> None:
        """Raise ConfigError where the pipeline computes something else than an operator's."""
        if self.operator != operator:
            raise ConfigError(
                f"{self.operator}: this is for pipelines of {operator}s, with a section [{operator}]; name such a config"
            )

    @property
    def beyond_retention(self) -> str:
        """What becomes of events beyond retention: dead_letter, drop or emit."""
        return self.section.beyond_retention

    @property
    def publishes_final(self) -> bool:
        """Whether `publish` sends rows once they are final, and not with every change."""
        asked = self.sink.kafka.emit if self.sink.kafka else None
        return self.section.shown == "final" if asked is None else asked == "final"

    @property
    def gap_us(self) -> int:
        """Inactivity gap of sessions."""
        return self.sessions.gap_us

    @property
    def grace_us(self) -> int:
        """How long after its end what is computed still changes."""
        return self.section.grace_us

    @property
    def retention_us(self) -> int:
        """How long before the watermark events are taken in."""
        return self.section.retention_us

    @property
    def max_future_skew_us(self) -> int:
        """How far ahead of the batch's clock an event may be; what the operator says, but a minute at least, where none is given."""
        text = self.event.max_future_skew
        return max(self.section.skew_us, MINUTE_US) if text is None else parse_duration(text)

    @property
    def checkpoint(self) -> str:
        """Where Spark's checkpoint lies."""
        return f"{self.pipeline.warehouse}/_checkpoints/{self.pipeline.name}"

    @property
    def store_dir(self) -> str:
        """Local directory of this pipeline's stores, with the variables that each executor replaces by its own."""
        return f"{self.pipeline.store}/{self.pipeline.name}"

    @property
    def driver_store_dir(self) -> str:
        """The stores' directory on this machine: `store` beside the config where a variable isn't set here."""
        store = f"{self.directory}/store" if unset_variables(self.pipeline.store) else expanded(self.pipeline.store)
        return f"{store}/{self.pipeline.name}"

    @property
    def lock_dir(self) -> str:
        """Where the driver's lock lies: with its stores; beside the config where variables may place those elsewhere in another environment."""
        store = self.pipeline.store
        if "$" not in store:
            return self.driver_store_dir
        return f"{self.directory}/store/{re.sub('[${}]', '', store)}/{self.pipeline.name}"

    def quarantined_sql(self, micros: str) -> str | None:
        """Return SQL of the threshold that a session's row is above, null for none; None where there is no quarantine.

        `micros` makes whole microseconds of a time, as `unix_micros({})`.
        """
        return None if self.quarantine is None else self.quarantine.thresholds.rule_sql(micros)

    def rebuild_settings(self) -> dict[str, Any]:
        """Return the settings that a pipeline's tables are bound to: to change one is to rebuild."""
        events: dict[str, Any] = {}
        for side in self.inputs.values():
            event = side.event.model_dump(exclude={"max_future_skew", "max_key_bytes"})
            events |= {f"{side.event_at}.{name}": value for name, value in event.items()}
        return {**self.section.bound_settings(), **events, "aggregates": dict(self.aggregates)}

    def live_settings(self) -> dict[str, Any]:
        """Return the settings of classification that may change from batch to batch."""
        settings = {
            "grace_us": self.grace_us,
            "retention_us": self.retention_us,
            "beyond_retention": self.beyond_retention,
            "archive": self.pipeline.archive,
            **self.section.live_settings(),
            **({} if self.quarantine is None else {"quarantine": self.quarantine.settings()}),
            **({} if self.ttl is None else {"ttl": self.ttl.settings()}),
        }
        each = {
            name: {"max_future_skew_us": side.max_future_skew_us, "max_key_bytes": side.event.max_key_bytes}
            for name, side in self.inputs.items()
        }
        return {**settings, **(each.get(EVENT_INPUT) or each)}

    def warnings(self) -> list[str]:
        """Return what is allowed but probably not meant."""
        grace, patience = format_duration(self.grace_us), self.section.PATIENCE
        return [
            f"{side.event_at}.max_future_skew ({format_duration(side.max_future_skew_us)}) exceeds {self.operator}.{patience} ({grace}): "
            f"one early event can make all others late; raise {patience} or lower it"
            for side in self.inputs.values()
            if side.max_future_skew_us > max(self.grace_us, MINUTE_US)
        ]


def load_config(path: str | Path) -> Config:
    """Read and validate a config file; ConfigError in one line."""
    return parse_config(parse_toml(read_text(path), path), Path(path).resolve().parent)


def read_text(path: str | Path) -> str:
    """Return a config file's text, line ends as they are; ConfigError in one line."""
    try:
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise ConfigError(
            f"config: {str(path)!r} can't be read ({error.strerror}); pass the path of a TOML file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"config: {str(path)!r} is no UTF-8 ({error}); save it as UTF-8") from error


def parse_toml(text: str, path: str | Path) -> dict[str, Any]:
    """Return what a config file's text says; ConfigError in one line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config: {str(path)!r} is no valid TOML ({error}); mend that line") from error


def parse_config(raw: dict[str, Any], directory: Path) -> Config:
    """Validate a config's content; relative paths are resolved against `directory`."""
    for name in ("directory", "other"):
        if name in raw:
            raise ConfigError(f"{name}: is no section; remove it")
    others, rest = _operators(raw)
    try:
        config = Config.model_validate(rest)
    except ValidationError as error:
        raise ConfigError(explain_invalid(error, Config)) from error
    if not others and config.session is None:
        raise ConfigError("session: is missing; add it to the config")
    config = config.model_copy(update={"other": {name: _section(name, value) for name, value in others.items()}})
    _check_inputs(config)
    if config.section.by_count and config.event.key is None:
        config = config.model_copy(update={"other": {config.operator: config.section.without_key()}})
    _check(config)
    store = config.pipeline.store
    pipeline = config.pipeline.model_copy(
        update={
            "warehouse": _resolve(config.pipeline.warehouse, directory),
            "store": store if store.startswith("$") else _resolve(store, directory),
            "code": config.pipeline.code and str((directory / config.pipeline.code).resolve()),
        }
    )
    tables = {name: _resolve(path, directory) for name, path in config.expire.tables.items()}
    expire = config.expire.model_copy(update={"tables": tables})
    sections: dict[str, Any] = {
        "pipeline": pipeline,
        "expire": expire,
        **_absolute_sources(config, pipeline, directory),
    }
    if config.sink.kafka:
        sections["sink"] = SinkSection(kafka=with_absolute_secrets(config.sink.kafka, directory))
    if config.metrics.textfile:
        sections["metrics"] = config.metrics.model_copy(
            update={"textfile": _resolve(config.metrics.textfile, directory)}
        )
    tls = {
        name: _resolve(path, directory)
        for name in ("tls_certificate", "tls_key")
        if (path := getattr(config.serve, name))
    }
    sections["serve"] = config.serve.model_copy(update=tls)
    if config.lineage.path:
        sections["lineage"] = config.lineage.model_copy(update={"path": _resolve(config.lineage.path, directory)})
    return config.model_copy(update={**sections, "directory": str(directory)})


def _operators(raw: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part a config's sections: what other operators than sessions are asked for with, by their names, and the rest."""
    others = {name: raw[name] for name in OPERATORS if name in raw and name != "session"}
    if len(others) + ("session" in raw) > 1:
        first, second = [name for name in OPERATORS if name in raw][:2]
        raise ConfigError(f"{second}: stands beside [{first}], and a pipeline computes one thing; keep one of them")
    if "session" in raw and "emit" in raw:
        raise ConfigError("emit: stands beside [session], whose changes are sent with each batch; write session.emit")
    if others.keys() & {"window", "join"} and "ttl" in raw:
        (name,) = others
        raise ConfigError(
            f"ttl: is for sessions and keyed tables; what a [{name}] keeps goes by {name}.retention_time or {name}.retention_count, "
            "remove it"
        )
    rest = {name: value for name, value in raw.items() if name not in others}
    for name, value in others.items():
        if isinstance(value, dict):
            others[name] = {**value, **{b: rest.pop(b) for b in section_class(name).BESIDE if b in rest}}
    return others, rest


def _section(name: str, value: Any) -> OperatorSection:
    model = section_class(name).variant(value if isinstance(value, dict) else {})
    try:
        return model.model_validate(value)
    except ValidationError as error:
        told = explain_invalid(error, model)
        raise ConfigError(told if told.startswith(model.BESIDE) else f"{name}.{told}") from error


def _absolute_sources(config: Config, pipeline: PipelineSection, directory: Path) -> dict[str, Any]:
    """Return the sections that have the sources, these with absolute paths."""
    sources = {name: _absolute(side.source, directory) for name, side in config.inputs.items()}
    for source in sources.values():
        if pipeline.archive and _place(source.path or "") == _place(f"{pipeline.warehouse}/{EVENTS}"):
            raise ConfigError(
                f"pipeline.archive: {source.path!r} is the source, and where the archive would lie; move the source, or archive nothing"
            )
    if EVENT_INPUT in sources:
        return {"source": sources[EVENT_INPUT]}
    return {"other": {config.operator: config.section.reading(sources)}}


def _absolute(source: SourceSection, directory: Path) -> SourceSection:
    named = {name: getattr(source, name) for name in ("path", "avro_schema")}
    paths = {name: _resolve(path, directory) for name, path in named.items() if path}
    return with_absolute_secrets(source.model_copy(update=paths), directory)


def _resolve(path: str, directory: Path) -> str:
    return path.rstrip("/") if "://" in path else str((directory / path).resolve())


def _place(path: str) -> str:
    """Return a path or URI so that two that name one place are equal."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:(//)?", "", path)).rstrip("/")


def _check_inputs(config: Config) -> None:
    sides = config.section.sides
    for name in ("source", "event"):
        if sides and name in config.model_fields_set:
            raise ConfigError(
                f"{name}: stands beside [{config.operator}], which has one on each side; write {config.operator}.left.{name}"
            )
        if not sides and name not in config.model_fields_set:
            raise ConfigError(f"{name}: is missing; add it to the config")
    if config.aggregates and not config.section.AGGREGATES:
        raise ConfigError(f"aggregates: stands beside [{config.operator}], which computes none; remove it")


def _beside(config: Config) -> set[str]:
    """Return the columns that rows have by these settings alone."""
    return {*(["open_until"] if config.section.keeps_until else []), *([RULE, RATE] if config.quarantine else [])}


def _check_quarantine(config: Config) -> None:
    if config.quarantine is not None:
        if config.session is None:
            raise ConfigError(f"quarantine: is for sessions, and this pipeline computes {config.operator}s; remove it")
        config.quarantine.check(config.session)


def _check_sink(config: Config) -> None:
    sink = config.sink.kafka
    if sink is not None:
        check_sink(sink)
        if config.section.hides_us is not None:
            raise ConfigError(
                "sink.kafka: would never hear of rows that expire, of which pattern 'segments' and ttl.changelog_retention log no deletes; write ttl.pattern = 'index'"
            )
        if sink.emit == "final" and not config.section.CLOSES:
            raise ConfigError(
                f"sink.kafka.emit: 'final' is of rows that close, and those of a [{config.operator}] never do; write 'changes'"
            )


def _check(config: Config) -> None:
    if not _NAME.fullmatch(config.pipeline.name):
        raise ConfigError(
            f"pipeline.name: {config.pipeline.name!r} must be letters, digits, _ and -; write for example 'clicks'"
        )
    others = {name: section.model_dump(exclude_unset=True) for name, section in config.other.items()}
    check_references({**config.model_dump(exclude_unset=True, exclude={"other"}), **others})
    for side in config.inputs.values():
        check_source(side.source)
    _check_sink(config)
    check_store_path(config.pipeline.store)
    config.section.check()
    _check_quarantine(config)
    if config.ttl is not None:
        config.ttl.check(config.sessions)
    for side in config.inputs.values():
        config.section.check_source(side.source)
        config.section.check_event(side.event)
        if side.event.time is None and not config.section.by_count:
            raise ConfigError(f"{side.event_at}.time: is missing; add it to the config")
    if config.section.KEYED and config.event.key is None:
        raise ConfigError("event.key: is missing; add it to the config")
    reserved, lower = RESERVED | config.section.RESERVED | _beside(config), dict[str, str]()
    for name in config.aggregates:
        if not _COLUMN.fullmatch(name) or name.lower() in reserved:
            raise ConfigError(
                f"aggregates.{name}: {name!r} can't name a column of {config.operator}s; write letters, digits and _, a letter first, and none of the fixed columns"
            )
        # Spark does not tell columns apart by case.
        if name.lower() in lower:
            raise ConfigError(f"aggregates.{name}: {lower[name.lower()]!r} is its name but for case; write another one")
        lower[name.lower()] = name
    check_quality(config.quality, config.aggregates)
    check_observed(config.metrics, config.lineage)
    config.serve.check()
