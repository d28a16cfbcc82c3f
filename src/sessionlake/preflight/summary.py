"""A summary of a pipeline in plain words."""

from collections.abc import Iterator

from sessionlake.config.durations import spoken_duration
from sessionlake.config.load import Config
from sessionlake.config.lookups import LookupSection
from sessionlake.config.names import DEAD_LETTER
from sessionlake.config.source import SourceSection
from sessionlake.config.upstream import Upstream
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import changelog_of
from sessionlake.warehouse.grace import grace_told, of_warehouse


def summary_of(config: Config, last: BatchCommit | None = None) -> dict[str, str]:
    """Return a pipeline's input, computation and output, one sentence each, by subject; `last` is its last commit, if any."""
    late, config = grace_told(config, last), of_warehouse(config, last)
    sentences = dict(_inputs(config))
    sentences["computes"] = config.section.in_words()
    if config.aggregates:
        sentences["columns"] = ", ".join(f"{name} = {text}" for name, text in config.aggregates.items())
    if late is not None:
        sentences["late events"] = late
    if config.section.facts.expires and changelog_of(config).has_times:
        sentences["older events"] = (
            f"more than {spoken_duration(config.retention_us)} before the watermark: {_BEYOND[config.beyond_retention]}"
        )
    sentences["writes"] = _written(config)
    if sent := [*_sent(config)]:
        sentences["publishes"] = "; ".join(sent)
    return sentences


_BEYOND = {
    "dead_letter": "go to dead_letters",
    "drop": "are dropped, and counted",
    "emit": "are sent as sessions of their own",
}


def _inputs(config: Config) -> Iterator[tuple[str, str]]:
    for name, side in config.inputs.items():
        of = f" {name}" if len(config.inputs) > 1 else ""
        upstream = side.upstream.get(side.source.AT)
        yield f"reads{of}", _read(side.source) if upstream is None else _followed(side.source, upstream)
        event, keys = side.event, config.keys[name]
        named = {"key": ", ".join(keys) or None, "time": event.time, "id": event.id}
        columns = ", ".join(f"{what} {column}" for what, column in named.items() if column) or "no columns by name"
        # Rows of another pipeline, and changes of a table, are not judged by the clock.
        ahead = f"; more than {spoken_duration(side.max_future_skew_us)} ahead of the clock: go to dead_letters"
        is_judged = upstream is None and not side.source.has_every_time
        yield f"events{of}", f"{columns}{ahead if is_judged else ''}"
        if event.exploded is not None:
            without = "is filtered, and counted" if event.explode is not None else "is an event, too"
            yield f"explodes{of}", f"{event.exploded}: an event for each element; a row without elements {without}"
        if event.where is not None:
            yield f"where{of}", f"{event.where}; other rows are filtered, and counted"
        if event.unique_for is not None:
            ids = " and ".join(event.id_columns)
            yield f"once{of}", f"an event whose {ids} came within {event.unique_for} before is a duplicate, and counted"
        if side.lookup:
            yield f"looks up{of}", "; ".join(map(_looked_up, side.lookup))


def _looked_up(section: LookupSection) -> str:
    equal = " and ".join(f"{right} = {left} of the event" for left, right in section.pairs)
    which = "valid at the event's time" if section.is_timed else "that is there"
    missing = "events without one go to dead_letters" if section.missing == DEAD_LETTER else "null without one"
    return f"{', '.join(section.columns)} of the row of {section.table or section.path} {which} with {equal}; {missing}"


def _followed(source: SourceSection, upstream: Upstream) -> str:
    rows = "all rows, and their changes" if source.takes_back else "rows that are final"
    sooner = source.takes_back and upstream.section.facts.knows_replaced and not upstream.keeps_replaced
    hint = f" (which it finds sooner with pipeline.keep_replaced = true in {upstream.name})" if sooner else ""
    return f"{upstream.changelog.live} of {upstream.name} in {upstream.warehouse}: {rows}{hint}"


def _read(source: SourceSection) -> str:
    if source.entry.has_topic:
        records = f"{source.max_offsets_per_batch:,} records"
        form = source.format if source.envelope is None else f"{source.format} of {source.envelope}"
        many = "s like" if source.topic_pattern is not None else "s" if source.has_topics else ""
        return f"topic{many} {source.place} of {source.bootstrap_servers} ({form}), at most {records} a batch"
    limits = [f"{source.files_per_batch} files"] if source.files_per_batch else []
    limits += [f"{source.bytes_per_batch:,} bytes"] if source.bytes_per_batch else []
    what = "Delta table" if source.entry.is_table else f"{source.format} files in"
    what = f"changes of the {what}" if source.entry.has_changes else what
    return f"{what} {source.path}, at most {' and '.join(limits)} a batch"


def _written(config: Config) -> str:
    of = changelog_of(config)
    whole = " and every row to source_rows" if config.pipeline.archive == "all" else ""
    archive = f", and every event to events{whole}" if config.pipeline.archive else ""
    archive += ", and the rows that it replaces to replaced_rows" if config.pipeline.keep_replaced else ""
    return f"{of.live} (from {of.changes} and {of.snapshot}){archive} in {config.pipeline.warehouse}"


def _sent(config: Config) -> Iterator[str]:
    """Yield what `sessionlake publish` does for each sink."""
    topic, table, base, called = config.sink.kafka, config.sink.delta, config.sink.postgres, config.sink.python
    if topic:
        errors = f", late events and dead letters to topic {topic.errors}" if topic.errors else ""
        yield f"`sessionlake publish` sends them to topic {topic.topic}{errors}"
    if table:
        yield f"`sessionlake publish` keeps them in the table {table.path}"
    if base:
        yield f"`sessionlake publish` keeps them in the table {base.table} of PostgreSQL"
    if called:
        yield f"`sessionlake publish` calls {called.call} with those that change"
