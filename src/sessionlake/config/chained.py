"""Rules between a pipeline's config and the config of an upstream pipeline: which rows can be read, and with which settings."""

import re

from sessionlake.config.config import Config
from sessionlake.config.names import DEAD_LETTER
from sessionlake.config.operator_sections import StandIn
from sessionlake.config.operators import OPERATORS
from sessionlake.errors import ConfigError

_OF_CHANGES = re.compile(r"\b_(change_type|commit_version|commit_timestamp)\b", re.IGNORECASE)
"""Columns that a change data feed adds to the row."""
_TIMES = ("_source_time", "_timestamp")
"""The times of a change, which a delete has, too."""


def check_upstream(config: Config, side: Config) -> None:
    """Raise ConfigError if the input `side` can't read the results of its upstream pipeline; other inputs pass."""
    upstream = config.upstream.get(side.source.AT)
    if upstream is None:
        return
    at, named = side.source.AT, repr(side.source.of)
    if side.event.max_future_skew is not None:
        raise ConfigError(f"{side.event_at}.max_future_skew: no clock judges rows of {named}; remove it")
    if config.pipeline.archive == "all":
        raise ConfigError(f"pipeline.archive: 'all' keeps rows that the tables of {named} have; write true or false")
    section = upstream.section
    if side.source.takes_back:
        if section.facts.hides_us is not None:
            raise ConfigError(
                f"{at}.rows: rows of {named} expire without a change that could be read; write ttl.pattern = 'index' there"
            )
        return
    if section.facts.never_changes:
        return
    if not section.facts.closes:
        raise ConfigError(
            f"{at}.rows: 'final' is of rows that close, and those of {named}, a [{upstream.entry.section}], never do; write 'changes'"
        )
    if section.facts.not_final:
        raise ConfigError(f"{at}.rows: 'final' {section.facts.not_final} in {named}")


def check_changes(config: Config, side: Config) -> None:
    """Raise ConfigError if the input `side` has changes of rows, and the pipeline can't follow them."""
    if side.source.envelope is not None:
        _check_envelope(config, side)
    if side.source.takes_back:
        _check_taken_back(config, side)


def _check_taken_back(config: Config, side: Config) -> None:
    """Raise ConfigError if rows can't be taken back, or would be taken back with columns that differ from the added row's."""
    source = side.source
    at, named = source.AT, repr(source.place)
    setting = "kind" if source.entry.has_changes else "rows"
    entry = None if isinstance(config.section, StandIn) else config.entry
    if entry is not None and not (entry.subtracts or entry.deletes):
        able = " or ".join(f"[{one.section}]" for one in OPERATORS.values() if one.subtracts or one.deletes)
        instead = "'delta', if rows are only added there," if source.entry.has_changes else "'final',"
        raise ConfigError(
            f"{at}.{setting}: a [{config.operator}] can't take rows back that change; write {instead} or use {able}"
        )
    if source.entry.has_changes and side.event.max_future_skew is not None:
        raise ConfigError(f"{side.event_at}.max_future_skew: no clock judges changes of {named}; remove it")
    if source.entry.has_changes and (of := _OF_CHANGES.search(side.event.where or "")) is not None:
        raise ConfigError(
            f"{side.event_at}.where: {of[0]} is of a change, and a row is taken back by another change than the one that added it; ask for columns of the table"
        )
    if side.lookup:
        raise ConfigError(
            f"{side.lookup_at}: a row would be taken back with other columns than it was added with; look it up in {named}, or behind"
        )
    if side.event.unique_for is not None:
        raise ConfigError(f"{side.event_at}.unique_for: rows of {named} come once; remove it")
    if config.pipeline.archive:
        raise ConfigError(f"pipeline.archive: would keep rows that are taken back, and {named} has them; write false")


def _check_envelope(config: Config, side: Config) -> None:
    """Raise ConfigError if changes of rows are read as if they were events: a connector sends some of them twice."""
    at = f"{side.source.AT}.envelope"
    if not isinstance(config.section, StandIn) and not config.entry.deletes:
        raise ConfigError(
            f"{at}: records that are changes of rows go into a [table], and this is a [{config.operator}]; "
            "write a [table], and read its results with rows = 'changes'"
        )
    if side.event.where is not None:
        raise ConfigError(
            f"{side.event_at}.where: a row that changes so that it is no longer let in would stay in the table, and a delete has only its key; "
            f'write table.delete_when = "not coalesce({side.event.where}, false)"'
        )
    if side.event.time is not None and side.event.time not in _TIMES:
        raise ConfigError(
            f"{side.event_at}.time: {side.event.time!r} is a column of the row, which a delete may not have; write {' or '.join(map(repr, _TIMES))}"
        )
    if (asked := next((one.name for one in side.lookup if one.missing == DEAD_LETTER), None)) is not None:
        raise ConfigError(
            f"{side.lookup_at}.{asked}.missing: 'dead_letter' would refuse deletes, which may have nothing but their key; write 'null'"
        )
    if config.pipeline.archive == "all":
        raise ConfigError("pipeline.archive: 'all' keeps rows, and records with an envelope hold two each; write true")
