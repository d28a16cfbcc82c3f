"""A pipeline's TOML config: validated once, here; every error names the place, the key, the value and a valid value."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, cast

from pydantic import Field, SerializeAsAny

from sessionlake.config.absolute import with_absolute_paths
from sessionlake.config.airflow import AirflowSection
from sessionlake.config.chained import warned_key
from sessionlake.config.checks import checks_of, wrong_key_columns
from sessionlake.config.durations import MINUTE_US, parse_duration, spoken_duration
from sessionlake.config.file import ConfigFile
from sessionlake.config.jobs import CompactSection, ExpireSection, QualitySection
from sessionlake.config.lookups import LOOKUP, LookupSection, live_lookups
from sessionlake.config.missing import MissingSection
from sessionlake.config.names import EVENT_INPUT
from sessionlake.config.observed import LineageSection, MetricsSection
from sessionlake.config.operators import OperatorEntry, entry_of
from sessionlake.config.paths import expanded, is_remote, resolved, unset_variables
from sessionlake.config.problems import Gathered, InvalidConfigError, problems_of
from sessionlake.config.sections import OF_RESULTS, EventSection, OperatorSection, PipelineSection, Section
from sessionlake.config.serve import ServeSection
from sessionlake.config.source import SinkSection, SourceSection
from sessionlake.config.structure import structured
from sessionlake.config.upstream import LookedUpTable, Upstream, upstreams_in, with_events_of
from sessionlake.errors import SessionlakeError


class Config(Section):
    """A validated config; paths are absolute or URIs, durations are in microseconds if the name says so."""

    pipeline: PipelineSection
    source: SourceSection = Field(default=cast("SourceSection", MissingSection("source")))
    """The input; for a join each side has its own (`inputs`)."""
    event: EventSection = Field(default=cast("EventSection", MissingSection("event")))
    lookup: list[LookupSection] = Field(default=[])
    """Tables from which each event is enriched, in this order."""
    section: SerializeAsAny[OperatorSection]
    """The operator's section, with the sections that go with it ([aggregates], [emit], [ttl] ...)."""
    compact: CompactSection = CompactSection()
    quality: QualitySection = QualitySection()
    expire: ExpireSection = ExpireSection()
    sink: SinkSection = SinkSection()
    metrics: MetricsSection = MetricsSection()
    lineage: LineageSection = LineageSection()
    serve: ServeSection = ServeSection()
    airflow: AirflowSection = AirflowSection()
    looked_up: dict[str, LookedUpTable] = Field(default={})
    """The [table] pipelines that lookups read, by the lookups' names."""
    upstream: dict[str, Upstream] = Field(default={})
    """The pipelines whose results are the rows of a source, by the place of that source."""
    directory: str = "."
    """Directory of the config file."""
    project_warehouse: str | None = None
    """The warehouse of its project, in which pipelines have their folders, if it is in one."""

    @property
    def in_project(self) -> bool:
        """Whether the file is in a project, next to those of other pipelines."""
        return self.project_warehouse is not None

    @property
    def prefix(self) -> str:
        """The beginning of its tables' names in a catalog's schema, which the pipelines of a project share; empty outside a project."""
        return f"{self.pipeline.name.replace('-', '_')}_" if self.in_project else ""

    @property
    def operator(self) -> str:
        """The name of the operator's section."""
        return self.entry.section

    @property
    def entry(self) -> OperatorEntry:
        """The entry of the operator: the places of all its parts."""
        return entry_of(self.section)

    @property
    def aggregates(self) -> dict[str, str]:
        """The aggregates as texts, by name; none if the operator has no section [aggregates]."""
        return self.section.aggregates

    @property
    def inputs(self) -> dict[str, "Config"]:
        """The event inputs by name, each as the config of a pipeline that has no other: with its source and its event."""
        sides = self.section.sides
        if not sides:
            return {EVENT_INPUT: self}
        parts = {name: {"source": s.source, "event": s.event, "lookup": list(s.lookup)} for name, s in sides.items()}
        return {name: self.model_copy(update=part) for name, part in parts.items()}

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """By event input the columns that make the key; none if all events have one."""
        if self.section.sides:
            return dict(self.section.keys)
        return {EVENT_INPUT: self.event.key_columns}

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that a key of several columns is made of, as the first input calls them; none of a key of one column."""
        first = next(iter(self.keys.values()), ())
        return first if len(first) > 1 else ()

    @property
    def table_key_columns(self) -> tuple[str, ...]:
        """`key_columns` as rows have them beside the key. Pairs of a join have none if one of the names means something else there."""
        taken = self.section.sides and any(wrong_key_columns(self))
        return () if taken else self.key_columns

    @property
    def with_ids(self) -> bool:
        """Whether events of any input have ids."""
        return any(side.event.id is not None for side in self.inputs.values())

    @property
    def topics(self) -> list[str]:
        """The topics that are read."""
        return [
            name for side in self.inputs.values() if side.source.entry.has_topic for name in side.source.topic_names
        ]

    @property
    def event_at(self) -> str:
        """The place of the section of the events."""
        return self.source.AT.removesuffix("source") + "event"

    @property
    def lookup_at(self) -> str:
        """The place of the sections of lookups."""
        return self.source.AT.removesuffix("source") + LOOKUP

    @property
    def beyond_retention(self) -> str:
        """The treatment of events beyond retention: dead_letter, drop or emit."""
        return self.section.beyond_retention

    @property
    def publishes_final(self) -> bool:
        """Whether `publish` sends rows to the topic once they are final, and not with every change."""
        return self.is_final("kafka")

    def is_final(self, sink: str) -> bool:
        """Return whether a sink, by its name in [sink], gets only rows that are final."""
        target = self.sink.targets.get(sink)
        asked = None if target is None else target.emit
        return self.section.shown == "final" if asked is None else asked == "final"

    @property
    def sums_events(self) -> bool:
        """Whether the rows' event_count add up to the accepted events: each is in exactly one row, and none is taken back."""
        return self.section.sums_events and not self.subtracts

    @property
    def subtracts(self) -> bool:
        """Whether events may be subtracted: the source takes rows back, and the operator subtracts them."""
        return self.entry.subtracts and self._takes_back

    @property
    def takes_back(self) -> bool:
        """Whether events may be taken back: the source does that, and the operator can."""
        return (self.entry.subtracts or self.entry.deletes) and self._takes_back

    @property
    def _takes_back(self) -> bool:
        return any(side.source.takes_back for side in self.inputs.values())

    @property
    def grace_us(self) -> int:
        """The time after its end for which a result still changes."""
        return self.section.grace_us

    @property
    def retention_us(self) -> int:
        """How long before the watermark events are taken in."""
        return self.section.retention_us

    @property
    def max_future_skew_us(self) -> int:
        """The time by which an event may be ahead of the batch's clock; without a setting the operator's default, at least a minute."""
        text = self.event.max_future_skew
        return max(self.section.skew_us, MINUTE_US) if text is None else parse_duration(text)

    @property
    def checkpoint(self) -> str:
        """The path of Spark's checkpoint."""
        return f"{self.pipeline.warehouse}/_checkpoints/{self.pipeline.name}"

    @property
    def store_dir(self) -> str:
        """Local directory of this pipeline's stores, with the variables that each executor replaces by its own."""
        return f"{self.pipeline.store}/{self.pipeline.name}"

    @property
    def driver_store_dir(self) -> str:
        """The stores' directory on this machine: `store` next to the config if a variable isn't set here."""
        store = f"{self.directory}/store" if unset_variables(self.pipeline.store) else expanded(self.pipeline.store)
        return f"{store}/{self.pipeline.name}"

    @property
    def data_docs(self) -> Path:
        """The directory of the documents of `quality`, unless the command names another one."""
        return Path(self.directory, "quality", self.pipeline.name if self.in_project else "")

    @property
    def lock_dir(self) -> str:
        """The directory of the driver's lock: with its stores; next to the config if variables may place the stores elsewhere in another environment."""
        store = self.pipeline.store
        if "$" not in store:
            return self.driver_store_dir
        return f"{self.directory}/store/{re.sub('[${}]', '', store)}/{self.pipeline.name}"

    def quarantined_sql(self, micros: str) -> str | None:
        """Return SQL of the reason for which a row is in quarantine, null for none; see `OperatorSection`."""
        return self.section.quarantined_sql(micros)

    def as_taken(self, bound: Mapping[str, Any], live: Mapping[str, Any]) -> Self:
        """Return the config with the section that a batch with these settings had (`OperatorSection.as_taken`)."""
        return self._having(self.section.as_taken(bound, live))

    def with_grace(self, grace_us: int) -> Self:
        """Return the config with a grace, if none is written (`OperatorSection.with_grace`)."""
        return self._having(self.section.with_grace(grace_us))

    def _having(self, section: OperatorSection) -> Self:
        return self if section is self.section else self.model_copy(update={"section": section})

    def rebuild_settings(self) -> dict[str, Any]:
        """Return the settings that a pipeline's tables are bound to: to change one is to rebuild."""
        events: dict[str, Any] = {}
        for side in self.inputs.values():
            event = side.event.model_dump(
                exclude={"max_future_skew", "max_key_bytes", "where", "unique_for", "duplicates"}
            )
            event["columns"] = event["columns"] or None
            events |= {f"{side.event_at}.{name}": value for name, value in event.items()}
            if side.source.topics is not None:  # partitions then have other numbers
                events[f"{side.source.AT}.topics"] = "several"
            if side.source.entry.is_pipeline:
                events |= {f"{side.source.AT}.{name}": getattr(side.source, name) for name in ("of", "rows")}
            if side.source.takes_back:  # a row is taken back if it was let pass before, and only then
                events |= {f"{side.event_at}.{name}": getattr(side.event, name) for name in ("where", "max_key_bytes")}
            if side.lookup:
                events[side.lookup_at] = {section.name: section.bound for section in side.lookup}
        return {**self.section.bound_settings(), **events, "aggregates": dict(self.aggregates)}

    def live_settings(self) -> dict[str, Any]:
        """Return the settings of classification that may change from batch to batch."""
        settings = {
            "grace_us": self.grace_us,
            "retention_us": self.retention_us,
            "beyond_retention": self.beyond_retention,
            "archive": self.pipeline.archive,
            **self.section.live_settings(),
        }
        each = {
            name: {
                "max_future_skew_us": side.max_future_skew_us,
                "max_key_bytes": side.event.max_key_bytes,
                **({} if side.event.where is None else {"where": side.event.where}),
                **({} if side.event.unique_us is None else {"unique_for_us": side.event.unique_us}),
                **live_lookups(side.lookup),
            }
            for name, side in self.inputs.items()
        }
        return {**settings, **(each.get(EVENT_INPUT) or each)}

    def warnings(self) -> list[str]:
        """Return warnings about settings that are allowed but probably not meant."""
        patience, harmless_us = f"{self.operator}.{self.section.PATIENCE}", self.section.harmless_us
        found = [f"{self.operator}.{line}" for line in self.section.old_names_told()]
        found += self.section.warnings()
        found += filter(None, (warned_key(self, side) for side in self.inputs.values()))
        for side in self.inputs.values():
            # No clock judges the rows of another pipeline, and no change of a table is late.
            if (
                side.source.entry.is_pipeline
                or side.source.has_every_time
                or side.max_future_skew_us <= max(harmless_us, MINUTE_US)
            ):
                continue
            skew = spoken_duration(side.max_future_skew_us)
            told = f"the default, {skew}," if side.event.max_future_skew is None else skew
            lets = f"lets one early event make events of now late, which it can't up to {spoken_duration(harmless_us)}"
            found.append(f"{side.event_at}.max_future_skew: {told} {lets}; write that or less, or raise {patience}")
        return found


def load_config(path: str | Path) -> Config:
    """Read and validate a pipeline's file, with the defaults of its project; InvalidConfigError, a line for each problem, if it has any."""
    return config_of(ConfigFile.read(path))


def config_of(file: ConfigFile) -> Config:
    """Return the config of a pipeline's file; InvalidConfigError has the place of each problem."""
    try:
        config = parse_config(file.merged(), file.directory)
    except SessionlakeError as error:
        raise InvalidConfigError(file.located(problems_of(error))) from error
    root = file.project_warehouse
    return config if root is None else config.model_copy(update={"project_warehouse": resolved(root, file.directory)})


def parse_config(raw: dict[str, Any], directory: Path) -> Config:
    """Validate a config's content; relative paths are resolved against `directory`. InvalidConfigError has all its problems."""
    found = Gathered()
    upstream = upstreams_in(raw, directory, found)
    raw = with_events_of(raw, upstream)
    config, wrong = structured(raw, Config, found)
    config = config.model_copy(update={"upstream": upstream})
    if not config.section.sides and config.event.key is None:
        config = config.model_copy(update={"section": config.section.without_key()})
    for check in checks_of(config, raw):
        one = Gathered()
        with one.one():
            check()
        for problem in one.problems:
            # Problems of a stand-in for a wrong section are not the user's.
            if str(problem.key).partition(".")[0] not in wrong:
                found.add_other(problem)
    found.raise_any()
    return _following_at_once(with_absolute_paths(config, directory))


def _following_at_once(config: Config) -> Config:
    """Return a config that reads nothing but results of other pipelines with a short trigger, unless it has one of its own.

    A look for news in tables on a disk costs little: two files of logs. In an object store each look is several requests, which are paid for.
    """
    reads_results = all(side.source.entry.is_pipeline for side in config.inputs.values())
    places = (config.pipeline.warehouse, *(one.warehouse for one in config.upstream.values()))
    if not reads_results or "trigger" in config.pipeline.model_fields_set or any(map(is_remote, places)):
        return config
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"trigger": OF_RESULTS})})
