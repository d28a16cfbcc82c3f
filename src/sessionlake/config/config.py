"""A pipeline's valid config."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, cast

from pydantic import Field, SerializeAsAny

from sessionlake.column_names import titled, titles_of
from sessionlake.config.airflow import AirflowSection
from sessionlake.config.durations import MINUTE_US, parse_duration, spoken_duration
from sessionlake.config.fields import Section
from sessionlake.config.jobs import CompactSection, ExpireSection, QualitySection
from sessionlake.config.lookups import LOOKUP, LookupSection, live_lookups
from sessionlake.config.names import EVENT_INPUT, RESERVED
from sessionlake.config.observed import LineageSection, MetricsSection
from sessionlake.config.operators import OperatorEntry, entry_of
from sessionlake.config.paths import expanded, unset_variables
from sessionlake.config.sections import EventSection, OperatorSection, PipelineSection
from sessionlake.config.serve import ServeSection
from sessionlake.config.source import SinkSection, SourceSection
from sessionlake.config.upstream import LookedUpTable, Upstream
from sessionlake.errors import ConfigError

COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
"""The form of columns' names in the tables."""


class MissingSection:
    """Stands for a missing section. To read a key is a ConfigError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, key: str) -> Any:
        # Python itself reads such names of objects, for example to copy one: they are no keys.
        if key.startswith("_"):
            raise AttributeError(key)
        raise ConfigError(
            f"{self._name}: this is for pipelines with one [{self._name}], and this one has several inputs, each with its own; name another config"
        )


class Config(Section):
    """A validated config; paths are absolute or URIs, durations are in microseconds if the name says so."""

    pipeline: PipelineSection
    source: SourceSection = Field(default=cast("SourceSection", MissingSection("source")))
    """The input. A join has none: each side has a source (`inputs`)."""
    event: EventSection = Field(default=cast("EventSection", MissingSection("event")))
    lookup: list[LookupSection] = Field(default=[])
    """Tables from which each event is enriched, in this order."""
    section: SerializeAsAny[OperatorSection]
    """The operator's section, with its companions ([aggregates], [emit], [ttl] ...)."""
    compact: CompactSection = CompactSection()
    quality: QualitySection = QualitySection()
    expire: ExpireSection = ExpireSection()
    sink: SinkSection = SinkSection()
    metrics: MetricsSection = MetricsSection()
    lineage: LineageSection = LineageSection()
    serve: ServeSection = ServeSection()
    airflow: AirflowSection = AirflowSection()
    looked_up: dict[str, LookedUpTable] = Field(default={})
    """[table] pipelines read by lookups, by the name of the lookup."""
    upstream: dict[str, Upstream] = Field(default={})
    """Pipelines whose results a source reads, by the place of the source."""
    directory: str = "."
    """Directory of the config file."""
    project_warehouse: str | None = None
    """The project's warehouse, with a folder for each pipeline; None outside a project."""

    @property
    def in_project(self) -> bool:
        """Whether the file is in a project, next to other pipelines."""
        return self.project_warehouse is not None

    @property
    def prefix(self) -> str:
        """Prefix of table names in a catalog's schema, which a project's pipelines share; empty outside a project."""
        return f"{self.pipeline.name.replace('-', '_')}_" if self.in_project else ""

    @property
    def operator(self) -> str:
        """The name of the operator's section."""
        return self.entry.section

    @property
    def entry(self) -> OperatorEntry:
        """The operator's entry: the places of all parts."""
        return entry_of(self.section)

    @property
    def aggregates(self) -> dict[str, str]:
        """The aggregates as texts, by name; none if the operator has no section [aggregates]."""
        return self.section.aggregates

    @property
    def inputs(self) -> dict[str, "Config"]:
        """Event inputs by name, each as the config of a pipeline with this one input."""
        sides = self.section.sides
        if not sides:
            return {EVENT_INPUT: self}
        parts = {name: {"source": s.source, "event": s.event, "lookup": list(s.lookup)} for name, s in sides.items()}
        return {name: self.model_copy(update=part) for name, part in parts.items()}

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """Key columns by event input; none if all events have the same key."""
        if self.section.sides:
            return dict(self.section.keys)
        return {EVENT_INPUT: self.event.key_columns}

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Columns of a key with several columns, under the titles that the first input's have; none for a key of one column."""
        first = next(iter(self.keys.values()), ())
        return titles_of(first) if len(first) > 1 else ()

    @property
    def table_key_columns(self) -> tuple[str, ...]:
        """`key_columns` that rows have beside the key. Pairs of a join have none if a name means something else there."""
        taken = self.section.sides and any(self.wrong_key_columns())
        return () if taken else self.key_columns

    def wrong_key_columns(self) -> Iterator[str]:
        """Yield a line for each key column whose name can't be a column of the rows."""
        try:
            titled(next(iter(self.keys.values()), ()))
        except ValueError as error:
            yield f"event.key: {error}"
        taken = RESERVED | self.section.reserved | {name.lower() for name in self.section.own_columns}
        for name in self.key_columns:
            if not COLUMN.fullmatch(name):
                yield f"event.key: {name!r} can't name a column of the tables; rename it in the source to letters, digits and _, a letter first"
            elif name.lower() in taken:
                yield f"event.key: {name!r} is a column of the rows beside the key; call the other one differently, or rename it in the source"

    @property
    def with_ids(self) -> bool:
        """Whether events of any input have ids."""
        return any(side.event.id is not None for side in self.inputs.values())

    @property
    def topics(self) -> list[str]:
        """Topics of all inputs."""
        return [
            name for side in self.inputs.values() if side.source.entry.has_topic for name in side.source.topic_names
        ]

    @property
    def event_at(self) -> str:
        """The place of [event]."""
        return self.source.AT.removesuffix("source") + "event"

    @property
    def lookup_at(self) -> str:
        """The place of [[lookup]]."""
        return self.source.AT.removesuffix("source") + LOOKUP

    @property
    def beyond_retention(self) -> str:
        """The treatment of events beyond retention: dead_letter, drop or emit."""
        return self.section.beyond_retention

    @property
    def publishes_final(self) -> bool:
        """Whether `publish` sends a row to the topic once it is final, and not with every change."""
        return self.is_final("kafka")

    def is_final(self, sink: str) -> bool:
        """Return whether a sink, by its name in [sink], gets final rows only."""
        target = self.sink.targets.get(sink)
        asked = None if target is None else target.emit
        return self.section.facts.shown == "final" if asked is None else asked == "final"

    @property
    def sums_events(self) -> bool:
        """Whether the rows' event_count add up to the accepted events: each event is in exactly one row, and none is taken back."""
        return self.section.facts.sums_events and not self.subtracts

    @property
    def subtracts(self) -> bool:
        """Whether events may be subtracted: the source takes rows back, and the operator subtracts them."""
        return self.entry.subtracts and self._takes_back

    @property
    def takes_back(self) -> bool:
        """Whether events may be taken back: the source takes rows back, and the operator can follow."""
        return (self.entry.subtracts or self.entry.deletes) and self._takes_back

    @property
    def _takes_back(self) -> bool:
        return any(side.source.takes_back for side in self.inputs.values())

    @property
    def grace_us(self) -> int:
        """How long a result changes after its end."""
        return self.section.grace_us

    @property
    def retention_us(self) -> int:
        """How long before the watermark events are taken in."""
        return self.section.retention_us

    @property
    def max_future_skew_us(self) -> int:
        """How far an event may be ahead of the batch's clock; by default as the operator says, at least a minute."""
        text = self.event.max_future_skew
        return max(self.section.skew_us, MINUTE_US) if text is None else parse_duration(text)

    @property
    def checkpoint(self) -> str:
        """The path of Spark's checkpoint."""
        return f"{self.pipeline.warehouse}/_checkpoints/{self.pipeline.name}"

    @property
    def store_dir(self) -> str:
        """Local directory of the stores, with variables that each executor replaces."""
        return f"{self.pipeline.store}/{self.pipeline.name}"

    @property
    def driver_store_dir(self) -> str:
        """The stores' directory on this machine: `store` next to the config if a variable isn't set here."""
        store = f"{self.directory}/store" if unset_variables(self.pipeline.store) else expanded(self.pipeline.store)
        return f"{store}/{self.pipeline.name}"

    @property
    def data_docs(self) -> Path:
        """Directory of the documents of `quality`, unless the command names another."""
        return Path(self.directory, "quality", self.pipeline.name if self.in_project else "")

    @property
    def lock_dir(self) -> str:
        """Directory of the driver's lock: beside the stores, or next to the config if variables may move the stores in another environment."""
        store = self.pipeline.store
        if "$" not in store:
            return self.driver_store_dir
        return f"{self.directory}/store/{re.sub('[${}]', '', store)}/{self.pipeline.name}"

    def quarantined_sql(self, micros: str) -> str | None:
        """Return SQL of the reason why a row is in quarantine, null for none; see `OperatorSection`."""
        return self.section.quarantined_sql(micros)

    def as_taken(self, bound: Mapping[str, Any], live: Mapping[str, Any]) -> Self:
        """Return the config with the section of a batch with these settings (`OperatorSection.as_taken`)."""
        return self._having(self.section.as_taken(bound, live))

    def with_grace(self, grace_us: int) -> Self:
        """Return the config with a grace, if none is written (`OperatorSection.with_grace`)."""
        return self._having(self.section.with_grace(grace_us))

    def _having(self, section: OperatorSection) -> Self:
        return self if section is self.section else self.model_copy(update={"section": section})

    def rebuild_settings(self) -> dict[str, Any]:
        """Return the settings to which the tables are bound: another value needs a rebuild."""
        events: dict[str, Any] = {}
        for side in self.inputs.values():
            event = side.event.model_dump(
                exclude={"max_future_skew", "max_key_bytes", "where", "unique_for", "duplicates"}
            )
            event["columns"] = event["columns"] or None
            events |= {f"{side.event_at}.{name}": value for name, value in event.items()}
            if side.source.has_topics:  # partitions then have other numbers
                events[f"{side.source.AT}.{'topics' if side.source.topic_pattern is None else 'topic_pattern'}"] = (
                    "several"
                )
            if side.source.key_format in ("avro", "protobuf"):  # `_key` is then another text
                events[f"{side.source.AT}.key_format"] = side.source.key_format
            if side.source.entry.is_pipeline:
                events |= {f"{side.source.AT}.{name}": getattr(side.source, name) for name in ("of", "rows")}
            if side.source.takes_back:  # a row is taken back if it was let pass before, and only then
                events |= {f"{side.event_at}.{name}": getattr(side.event, name) for name in ("where", "max_key_bytes")}
            if side.lookup:
                events[side.lookup_at] = {section.name: section.bound for section in side.lookup}
        return {**self.section.bound_settings(), **events, "aggregates": dict(self.aggregates)}

    def live_settings(self) -> dict[str, Any]:
        """Return the settings that classify events and may change from batch to batch."""
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
        """Return warnings about settings that are allowed but probably not intended."""
        patience, harmless_us = f"{self.operator}.{self.section.PATIENCE}", self.section.harmless_us
        found = [f"{self.operator}.{line}" for line in self.section.old_names_told()]
        found += self.section.warnings()
        found += filter(None, (_warned_key(self, side) for side in self.inputs.values()))
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


def _warned_key(config: Config, side: Config) -> str | None:
    """Return a warning if two upstream rows may get the same key in a table; None if they can't."""
    upstream, event = config.upstream.get(side.source.AT), side.event
    if upstream is None or not (side.source.takes_back and config.entry.deletes):
        return None
    if upstream.is_identified_by({*event.key_columns} - event.columns.keys()):
        return None
    identity, key = f"{[*upstream.changelog.identity]}".replace("'", '"'), " and ".join(map(repr, event.key_columns))
    return (
        f"{side.event_at}.key: once two rows of {side.source.of!r} have the same {key}, this pipeline stops until the table is made again under another key; "
        f"write key = {identity}, unless that can't happen"
    )
