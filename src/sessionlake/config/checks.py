"""Rules between several values of a config, each valid by itself. Each check raises its own error, and all are reported."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sessionlake.column_names import ELEMENT, is_element, name_of, title_of
from sessionlake.config.chained import check_changes, check_upstream
from sessionlake.config.config import COLUMN, Config
from sessionlake.config.durations import spoken_duration
from sessionlake.config.jobs import check_quality
from sessionlake.config.lookups import LookupSection
from sessionlake.config.names import RESERVED
from sessionlake.config.observed import check_observed
from sessionlake.config.operators import named
from sessionlake.config.paths import check_store_path
from sessionlake.config.sections import OperatorSection
from sessionlake.config.source import check_database, check_function, check_references, check_sink, check_source
from sessionlake.config.store_engines import check_store_engine
from sessionlake.errors import ConfigError

Check = Callable[[], None]


def checks_of(config: Config, raw: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the checks of a config and of its content `raw`; each raises ConfigError for the first problem."""
    sides = list(config.inputs.values())
    yield partial(check_references, raw)
    yield from (partial(check_source, side.source) for side in sides)
    yield from (partial(check_changes, config, side) for side in sides)
    yield from (partial(check_upstream, config, side) for side in sides)
    yield partial(_check_sinks, config)
    yield partial(check_store_path, config.pipeline.store)
    yield partial(check_store_engine, config.pipeline.store_engine)
    yield from config.section.checks()
    yield from (partial(_check_side, config, side) for side in sides)
    yield from (partial(_check_times, side) for side in sides)
    yield from (partial(_check_column, side, name) for side in sides for name in side.event.columns)
    yield from _checks_of_lookups(sides)
    yield partial(_check_archive, config)
    yield partial(_check_replaced, config)
    yield partial(_check_key, config)
    yield partial(_check_key_columns, config)
    yield from (partial(_check_aggregate, config, name) for name in config.aggregates)
    yield partial(check_quality, config.quality, config.aggregates)
    yield partial(check_observed, config.metrics, config.lineage)
    yield config.serve.check


def _check_archive(config: Config) -> None:
    """Refuse to keep whole rows if nothing can read them again."""
    if config.pipeline.archive != "all":
        return
    if config.section.sides:
        raise ConfigError(
            f"pipeline.archive: 'all' is for rebuilds, and a [{config.operator}] can't be rebuilt from the archive; write true"
        )
    if config.source.is_binary:
        raise ConfigError(
            f"pipeline.archive: 'all' keeps rows as text, and source.format is {config.source.format!r}; write true"
        )
    if config.source.key_format is not None:
        raise ConfigError(
            "pipeline.archive: 'all' keeps records' keys as they came, and source.key_format reads fields of them; write true"
        )
    if any(side.source.has_topics for side in config.inputs.values()):
        raise ConfigError(
            "pipeline.archive: 'all' keeps rows, but not which of source.topics they came from; write true"
        )


def _check_replaced(config: Config) -> None:
    """Refuse to keep replaced rows if shards do not know them."""
    if config.pipeline.keep_replaced and not config.section.facts.knows_replaced:
        raise ConfigError(
            f"pipeline.keep_replaced: this [{config.operator}] does not know the rows that it replaces as they were sent; "
            "remove it: a pipeline behind finds them in the tables"
        )


def _check_side(config: Config, side: Config) -> None:
    config.section.check_source(side.source)
    config.section.check_event(side.event)
    if side.event.time is None and config.section.TIMED:
        raise ConfigError(f"{side.event_at}.time: is missing; add it to the config")
    _check_unique(config, side)
    _check_exploded(config, side)


def _check_unique(config: Config, side: Config) -> None:
    """Refuse to look for duplicates without an id, if the operator can't, or for longer than events are accepted."""
    section, at, asked_us = config.section, f"{side.event_at}.unique_for", side.event.unique_us
    if asked_us is None:
        return
    if section.NOT_UNIQUE is not None:
        raise ConfigError(f"{at}: {section.NOT_UNIQUE}; remove it")
    if side.event.id is None:
        raise ConfigError(f"{at}: needs an id; write {side.event_at}.id, the column that a sender's retry repeats")
    if asked_us > section.retention_us:
        longest = spoken_duration(section.retention_us)
        raise ConfigError(
            f"{at}: {side.event.unique_for!r} is longer than events are taken in, {longest!r}; write that, or raise the retention"
        )
    # A warehouse may keep another default of grace: only `check_remembered` knows.
    _check_remembered(section.with_grace(0) if section.HAD_NO_GRACE else section, side)


def _check_exploded(config: Config, side: Config) -> None:
    """Refuse two lists, and an element for each in sources that have no lists, or whose rows change those of a table."""
    event, source = side.event, side.source
    at = f"{side.event_at}.{'explode_outer' if event.explode is None else 'explode'}"
    if event.exploded is None:
        if ELEMENT in event.id_columns:
            raise ConfigError(
                f"{side.event_at}.id: {ELEMENT!r} is the number of an exploded element; write {side.event_at}.explode"
            )
        return
    if event.explode is not None and event.explode_outer is not None:
        raise ConfigError(f"{at}: goes without explode_outer, which also keeps rows without elements; remove one")
    if source.format in ("csv", "text"):
        raise ConfigError(f"{at}: rows of format {source.format!r} have no lists; remove it")
    if source.envelope is not None or source.tombstones or (source.takes_back and config.entry.deletes):
        raise ConfigError(f"{at}: a row that changes a table's row is one event; remove it")
    if config.pipeline.archive == "all" and (source.format not in ("json", None) or source.entry.is_table):
        raise ConfigError("pipeline.archive: 'all' keeps no lists of this source; write true")


def check_remembered(config: Config) -> None:
    """Refuse to forget events that can still be compared, under the warehouse's default of grace; ConfigError."""
    for side in config.inputs.values():
        _check_remembered(config.section, side)


def _check_remembered(section: OperatorSection, side: Config) -> None:
    asked_us = side.event.unique_us
    if asked_us is None or asked_us >= section.least_unique_us:
        return
    least = spoken_duration(section.least_unique_us)
    shorter = "" if section.grace_told() is None else ", or a grace, which is not written"
    raise ConfigError(
        f"{side.event_at}.unique_for: {side.event.unique_for!r} is shorter than events wait for others, {least!r}; write that or longer{shorter}"
    )


def _check_times(side: Config) -> None:
    """Refuse two forms of times, and a format of times that are no texts."""
    event, at = side.event, f"{side.event_at}.time_format"
    if event.time_format is None:
        return
    if event.time_unit is not None:
        raise ConfigError(f"{at}: reads texts, and time_unit numbers; remove one")
    named("sessionlake.sources.columns:check_time_format")(at, event.time_format)
    if event.time is not None and side.source.types.get(event.time, "string") != "string":
        raise ConfigError(f'{at}: reads texts; write {event.time!r} = "string" in [{side.source.AT}.types]')


def _check_column(side: Config, name: str) -> None:
    at = f"{side.event_at}.columns.{name}"
    if not COLUMN.fullmatch(name):
        raise ConfigError(f"{at}: {name!r} can't name a column; write letters, digits and _, a letter first")
    # Delta compares the names of columns without case.
    same = next(other for other in side.event.columns if other.lower() == name.lower())
    if same != name:
        raise ConfigError(f"{at}: {same!r} is its name but for case; write another one")


def _check_key(config: Config) -> None:
    if config.section.KEYED and config.event.key is None:
        raise ConfigError("event.key: is missing; add it to the config")


def _check_key_columns(config: Config) -> None:
    """Refuse key columns whose names can't be columns of the tables. Rows of a join have no such columns then."""
    if not config.section.sides and (wrong := next(config.wrong_key_columns(), None)) is not None:
        raise ConfigError(wrong)


def _check_aggregate(config: Config, name: str) -> None:
    if name.lower() in RESERVED | config.section.reserved:
        raise ConfigError(
            f"aggregates.{name}: {name!r} can't name a column; tables and checks keep that name for themselves, write another one"
        )
    if not COLUMN.fullmatch(name):
        raise ConfigError(
            f"aggregates.{name}: {name!r} can't name a column; write letters, digits and _, a letter first"
        )
    # Spark compares the names of columns without case.
    same = next(other for other in config.aggregates if other.lower() == name.lower())
    if same != name:
        raise ConfigError(f"aggregates.{name}: {same!r} is its name but for case; write another one")


def _check_sinks(config: Config) -> None:
    if config.sink.kafka is not None:
        check_sink(config.sink.kafka)
    if config.sink.postgres is not None:
        check_database(config.sink.postgres)
    if config.sink.python is not None:
        check_function(config.sink.python)
    for name, sink in config.sink.targets.items():
        at = f"sink.{name}"
        if config.section.facts.hides_us is not None:
            raise ConfigError(
                f"{at}: would get no tombstones of rows that expire, because pattern 'segments' and ttl.changelog_retention log no deletes; write ttl.pattern = 'index'"
            )
        if sink.emit == "final" and not config.section.facts.closes:
            raise ConfigError(
                f"{at}.emit: 'final' is of rows that close, and those of a [{config.operator}] never do; write 'changes'"
            )
        if sink is config.sink.delta and config.sink.delta.history and config.is_final(name):
            raise ConfigError(
                "sink.delta.history: is of rows that change, and those that are final do not; write sink.delta.emit = 'changes'"
            )
        if sink.emit == "final" and config.section.facts.not_final:
            raise ConfigError(f"{at}.emit: 'final' {config.section.facts.not_final}, or 'changes'")


def _checks_of_lookups(sides: Iterable[Config]) -> Iterator[Callable[[], None]]:
    """Yield the checks of the lookups of all inputs; each raises ConfigError."""
    seen: list[str] = []
    for side in sides:
        for number, section in enumerate(side.lookup):
            yield partial(_check_lookup, side, section, tuple(seen))
            yield partial(_check_lookup_columns, side, section, side.lookup[:number])
            seen.append(section.name.lower())


def _check_lookup(side: Config, section: LookupSection, before: Sequence[str]) -> None:
    at = f"{side.lookup_at}.{section.name}"
    if not COLUMN.fullmatch(section.name):
        raise ConfigError(
            f"{at}.name: {section.name!r} can't begin a column's name; write letters, digits and _, a letter first"
        )
    if section.name.lower() in before:
        raise ConfigError(f"{at}.name: {section.name!r} is the name of another lookup; write another one")
    if (section.table is None) == (section.path is None):
        raise ConfigError(f"{at}.path: write table, the name of a pipeline, or path, and one of the two")
    if section.table is not None and section.format is not None:
        raise ConfigError(f"{at}.format: goes with path only; remove it")
    if section.types and section.format not in ("json", "csv"):
        raise ConfigError(f"{at}.types: goes with format 'json' or 'csv' only; remove it")
    if side.event.time in section.names:
        raise ConfigError(
            f"{side.event_at}.time: {side.event.time!r} is looked up, and an event's time can't be; name a column of the source"
        )
    computed = {name.lower() for name in side.event.columns}
    hidden = next((name for name in section.names if name.lower() in computed), None)
    if hidden is not None:
        raise ConfigError(f"{at}.columns: {hidden!r} is a column of {side.event_at}.columns, too; rename one of them")
    _check_lookup_on(side, section, at)
    _check_lookup_time(side, section, at)


def _check_lookup_columns(side: Config, section: LookupSection, above: Sequence[LookupSection]) -> None:
    """Check a lookup's columns beside each other, and beside the columns of lookups above."""
    at = f"{side.lookup_at}.{section.name}"
    # Tables tell columns apart by more than upper and lower case.
    known = {name.lower(): one.name for one in above for name in one.names}
    for column in section.columns:
        name = name_of([f"{section.name}_{title_of(column)}"])
        if known.get(name.lower(), section.name) != section.name:
            raise ConfigError(
                f"{at}.columns: {name!r} is a column of lookup {known[name.lower()]!r}, too; give one of the two another name"
            )
        if name.lower() in known:
            raise ConfigError(f"{at}.columns: {column!r} is there twice, perhaps in upper and lower case; name it once")
        known[name.lower()] = section.name
    found_by = {name: one for one in reversed(side.lookup) for name in one.names}
    for left in section.of_event:
        if (other := found_by.get(left)) is not None and other not in above:
            raise ConfigError(
                f"{at}.on: {left!r} is a column of lookup {other.name!r}, which is not above this one; move it there, or give it another name"
            )


def _check_lookup_on(side: Config, section: LookupSection, at: str) -> None:
    for left, right in section.pairs:
        if element := next(filter(is_element, (left, right)), None):
            raise ConfigError(
                f"{at}.on: {element!r} is an element, and lookups compare columns and their fields; name one of these"
            )
        if left in side.event.columns:
            raise ConfigError(
                f"{at}.on: {left!r} is computed, and lookups come before columns are computed; name a column of the source, "
                "or of a lookup above"
            )


def _check_lookup_time(side: Config, section: LookupSection, at: str) -> None:
    if not section.is_timed:
        told = next((name for name in ("valid_from", "valid_to") if getattr(section, name) is not None), None)
        if told is not None:
            raise ConfigError(f"{at}.{told}: goes with as_of = 'event_time' only; remove it, or write that")
        return
    if section.valid_from is None:
        raise ConfigError(
            f"{at}.valid_from: is missing, and as_of is 'event_time'; name the column from which on a row is valid"
        )
    if side.event.time is None or side.event.time in side.event.columns:
        raise ConfigError(
            f"{at}.as_of: 'event_time' needs a column of the source in {side.event_at}.time; write 'latest'"
        )
