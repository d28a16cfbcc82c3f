"""The comparison of a config with the last commit: the changes, each with its class. Known without Spark."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sessionlake.column_names import name_of
from sessionlake.columnar.column_types import stored_text, stored_type, type_name, type_named
from sessionlake.config.durations import spoken_duration
from sessionlake.config.load import Config
from sessionlake.config.lookups import LOOKUP
from sessionlake.config.names import column_of
from sessionlake.config.read_upstream import upstream_of
from sessionlake.errors import PipelineStateError, SessionlakeError
from sessionlake.sources.record_columns import meta_of
from sessionlake.stream.accepted_commands import kept_before, rebuild_command, refuses_source
from sessionlake.stream.computed import Different, columns_at, different, had_other_columns
from sessionlake.stream.equality import other_texts
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.named_columns import users_of
from sessionlake.warehouse.batch_commit import BatchCommit, engine_in, layout_of

MISSING = "missing"
"""The setting of what events get that find no row, by lookup."""
LOOKED_UP = "looked_up"
"""The setting of the columns that lookups add."""
_NOT_OF_THE_CONFIG = ("allow_expiry",)
"""Settings of classification that options of `run` set."""
_OF_LOOKUPS = (MISSING, LOOKED_UP)
"""Settings of classification that `_looked_up` compares."""


class Class(StrEnum):
    """The effect of a change on results that are there."""

    LIVE = "live"
    """It holds from the next batch on."""
    ADDED = "from here on"
    """It holds for results that begin from the next batch on; it is null in existing results."""
    CUT = "from a time on"
    """It holds from an event time on; no result crosses this time."""
    DROPPED = "dropped"
    """It is null from the next batch on; the run must be told to."""
    RESTORE = "restore"
    """The stores are restored from the tables."""
    REBUILD = "rebuild"
    """The tables must be made again."""


@dataclass(frozen=True)
class Change:
    """A setting whose value is not that of the last commit."""

    of: Class
    name: str
    """The key in the config, as `session.gap`."""
    before: Any
    """The value in the commit, a JSON value; None if it had none."""
    after: Any
    """The value in the config, a JSON value; None if it is gone."""
    told: str
    """Both in the user's words."""
    refusal: str | None = None
    """The line with which `run` refuses it; None if `run` takes it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The further facts that `plan` finds in the tables, as JSON values."""
    lines: tuple[str, ...] = ()
    """Further lines for people."""

    @property
    def adds(self) -> bool:
        """Whether an aggregate is added."""
        return self.of == Class.ADDED

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "change": str(self.of),
            "setting": self.name,
            "before": self.before,
            "after": self.after,
            "told": self.told,
            "refused": self.refusal,
            **self.facts,
        }


def changes(config: Config, last: BatchCommit, bound: Mapping[str, Any], layout: str | None = None) -> list[Change]:
    """Return each difference of a config from the last commit; empty if there is none.

    `bound` are `Kind.bound_settings`, and `layout` is `Kind.store_layout` of the config's operator, None if it is not known.
    """
    if last.pipeline != config.pipeline.name:
        return [_of_another(config, last)]
    computed = [*_computed(config, last), *_looked_up(config, last), *_typed(config, last), *_equal(config, last)]
    computed += _with_dots(config, last)
    added = [*_added(config, last), *_reused(config, last), *_dropped(config, last), *_cut(config, last)]
    rebuilt = list(_rebuilt(config, last, bound, {change.name for change in (*computed, *added)}))
    # What a rebuild changes need not be restored. With an aggregate stores are restored in any case.
    restores = any(change.of in (Class.ADDED, Class.DROPPED) for change in added)
    restored = [] if rebuilt or restores else list(_restored(config, last, layout))
    return [*_live(config, last), *computed, *added, *restored, *rebuilt]


def refusals(
    config: Config, last: BatchCommit, bound: Mapping[str, Any], *, runs: bool = True, drops: bool = False
) -> Iterator[str]:
    """Yield a line for each change that is refused; `bound` as in `changes`.

    `runs` says that the stream starts with the config. Jobs write states, and so refuse an aggregate or a gap that the stream has not taken.
    `drops` says that aggregates which are gone are meant to be dropped.
    """
    for change in changes(config, last, bound):
        if change.refusal is not None and not (drops and change.of == Class.DROPPED):
            yield change.refusal
    if not runs:
        for change in (*_added(config, last), *_cut(config, last)):
            yield (
                f"{change.name}: is {'new' if change.of == Class.ADDED else 'changed'}, and the stream has not taken it; "
                "`sessionlake run CONFIG --once` takes it, and so does a stream that is started again"
            )


def refusal(config: Config, last: BatchCommit) -> str | None:
    """Return why a run of the config would be refused after a batch; None if it would not."""
    return next(refusals(config, last, {}), None)


def check_changes(
    config: Config, last: BatchCommit | None, bound: Mapping[str, Any], *, runs: bool = False, drops: bool = False
) -> None:
    """Raise PipelineStateError for a config that is refused after the last commit; the other arguments as in `refusals`."""
    if last is not None and (told := next(refusals(config, last, bound, runs=runs, drops=drops), None)) is not None:
        raise PipelineStateError(told)


def taken(config: Config, last: BatchCommit | None, bound: Mapping[str, Any]) -> list[str]:
    """Return a line for each change that a run takes from its next batch on, once nothing is refused; `bound` as in `changes`."""
    found = [] if last is None else changes(config, last, bound)
    return [f"{change.name}: {change.told}" for change in found]


def all_bound(config: Config, bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that bind the tables, by the config and by its kind."""
    return {**config.rebuild_settings(), **bound}


def _of_another(config: Config, last: BatchCommit) -> Change:
    before, after = last.pipeline, config.pipeline.name
    refused = (
        f"pipeline.name: warehouse {config.pipeline.warehouse!r} belongs to pipeline {before!r}, not {after!r}; "
        "use one warehouse a pipeline"
    )
    return Change(Class.REBUILD, "pipeline.name", before, after, f"{before} -> {after}", refused)


def _rebuilt(config: Config, last: BatchCommit, bound: Mapping[str, Any], others: Collection[str]) -> Iterator[Change]:
    """Yield the changes of settings that bind the tables, except for `others`."""
    before, now = last.settings.rebuild, _plain(all_bound(config, bound))
    shaping = {columns_at(side) for side in config.inputs.values()}
    for name in (setting for setting in now if setting not in shaping):
        old_value = (before.get(name) or {}) if isinstance(now[name], dict) else before.get(name)
        for key, old, new in _differences(name, old_value, now[name]):
            if key in others or _is_same_pipeline(config, key, old):
                continue
            was, told = _as_written(config, key, old), _as_written(config, key, new)
            changed = f"is gone, and was {was}" if new is None else f"changed from {was} to {told}"
            if key in config.section.CUTS and kept_before(config, before, last.watermark_us) is not None:
                cheaper = f"keep it for earlier event times with [[{config.operator}.before]], which `sessionlake plan CONFIG --write` adds"
            elif key.startswith("aggregates."):
                cheaper = f"write {told} under another name"
            else:
                cheaper = None
            refused = (
                f"{key}: {changed} on existing {config.operator}s; "
                f"restore the old value{f', {cheaper}' if cheaper else ''}, or rebuild the tables: `{rebuild_command(config)}`, then switch readers"
            )
            if key in config.section.CUTS:
                too_early = config.section.cut_too_early(before, last.watermark_us, "the watermark")
                refused, cheaper = too_early or refused, None if too_early else cheaper
            lines = () if cheaper is None else (f"or {cheaper}",)
            yield Change(
                Class.REBUILD, key, old, new, f"{was} -> {told}: `{rebuild_command(config)}`", refused, lines=lines
            )


def _is_same_pipeline(config: Config, key: str, named: Any) -> bool:
    """Say whether a setting names the read pipeline in another way, for example by its file in place of its name."""
    at, _, name = key.rpartition(".")
    if name != "of" or at not in config.upstream or not isinstance(named, str):
        return False
    with suppress(SessionlakeError):
        return upstream_of(key, named, Path(config.directory)).warehouse == config.upstream[at].warehouse
    return False


def _cut(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the changes that hold from an event time after the watermark on."""
    section, before, now = config.section, last.settings.rebuild, _plain(config.section.bound_settings())
    if not section.CUTS or not section.same_until(before, last.watermark_us):
        return
    for key in section.CUTS:
        old, new = before.get(key), now[key]
        if old != new:
            was, told = _as_written(config, key, old), _as_written(config, key, new)
            yield Change(Class.CUT, key, old, new, f"{was} -> {told}: for event times after the watermark")


def _added(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the aggregates missing from the last commit's states, except a name with another meaning before."""
    known = _ever(last)
    # A table can have only one of several names that differ in case alone.
    cased = {name.lower(): name for name in known}
    for name, text in _not_in_states(config, last):
        if known.get(name, text) != text or cased.get(name.lower(), name) != name:
            continue
        if had_other_columns(config, last.settings, name, text) is None:
            fills = bool(last.settings.live.get("archive")) or refuses_source(config, "") is None
            yield Change(Class.ADDED, f"aggregates.{name}", None, text, added_told(config, text, "the", fills=fills))


def added_told(config: Config, text: str, many: str, *, fills: bool) -> str:
    """Return in words that an aggregate is added; `many` says in how many results it is null, `fills` whether `backfill` can fill it."""
    filled = ", until `sessionlake backfill` fills them" if fills and config.entry.recompute is not None else ""
    return f"+ {text}: null in {many} {config.operator}s that are there{filled}"


def _reused(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the aggregates whose column has values of the same text over another computed column."""
    known = _ever(last)
    for name, text in _not_in_states(config, last):
        column = had_other_columns(config, last.settings, name, text) if known.get(name) == text else None
        if column is not None:
            key, at = f"aggregates.{name}", columns_at(config)
            refused = (
                f"{key}: was dropped, and {at}.{column} meant something else then, whose values are in the column; give the aggregate another name, "
                f"or rebuild the tables: `{rebuild_command(config)}`, then switch readers"
            )
            told = f"+ {text}, of another meaning of {column}: `{rebuild_command(config)}`"
            yield Change(Class.REBUILD, key, None, text, told, refused, lines=("or give it another name",))


def _not_in_states(config: Config, last: BatchCommit) -> Iterator[tuple[str, str]]:
    """Yield the aggregates of the config that the last commit has not."""
    before = last.settings.rebuild.get("aggregates")
    return ((name, text) for name, text in config.aggregates.items() if before is not None and name not in before)


def _ever(last: BatchCommit) -> dict[str, str]:
    """Return all aggregates that states have had, by name."""
    return {name: text for layout in last.settings.layouts for name, text in layout["texts"].items()}


def _dropped(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the aggregates that are gone from the config."""
    for name, text in (last.settings.rebuild.get("aggregates") or {}).items():
        if name not in config.aggregates:
            key = f"aggregates.{name}"
            told = f"- {text}: the column stays, and is null in {config.operator}s that change or begin"
            refused = (
                f"{key}: is gone, and was {text!r}; restore it, or start once with `sessionlake run CONFIG --drop-aggregates`: "
                "then the column stays, and is null in rows that change or begin"
            )
            takes = "`sessionlake run CONFIG --drop-aggregates` takes it, once"
            yield Change(Class.DROPPED, key, text, None, told, refused, lines=(takes,))


def _computed(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the changed computed columns: only `where` may read them, and new aggregates."""
    for name, side in config.inputs.items():
        for column in different(side, name, last):
            yield _of_column(config, side, column)


def _of_column(config: Config, side: Config, column: Different) -> Change:
    key, old, new = f"{columns_at(side)}.{column.name}", column.before, column.after
    if new is None:
        told, changed = f"- {old}", f"is gone, and was {old!r}"
    elif old is None:
        told, changed = f"+ {new}", f"is new, as {new!r}"
    elif old == new:
        told, changed = (
            f"{new}, of other columns, by its place",
            f"{new!r} reads other columns than before, by its place",
        )
    else:
        told, changed = f"{old} -> {new}", f"changed from {old!r} to {new!r}"
    if column.reader is None:
        return Change(Class.LIVE, key, old, new, told)
    mended = (
        f"write it in {side.event_at}.where itself, or give it another name"
        if old is None
        else "restore it, and give the new text another name"
    )
    gone = (
        " (with another aggregate, if one is to read it)"
        if column.reader.startswith("aggregates.") and old is not None
        else ""
    )
    refused = f"{key}: {changed}, and {column.reader} reads it, on which existing {side.operator}s depend; {mended}{gone}, or rebuild the tables: `{rebuild_command(config)}`, then switch readers"
    told = f"{told}: `{rebuild_command(config)}`"
    return Change(Class.REBUILD, key, old, new, told, refused, lines=(f"or {mended}{gone}",))


def _typed(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the columns with a changed type: values of the old type are in the tables, and in states."""
    for input_, side in config.inputs.items():
        if side.source.entry.is_table or side.source.is_binary:
            continue
        for name, text in side.source.types.items():
            pinned = last.settings.types.get(column_of(input_, name))
            if pinned is None or name in meta_of(side.source) or pinned == stored_text(type_named(text)):
                continue
            key = f"{side.source.AT}.types.{name}"
            old = type_name(stored_type(pinned))
            refused = (
                f"{key}: {text!r}, and the pipeline has read {name!r} as {old!r} since its first batch; restore that, "
                f"or rebuild the tables: `{rebuild_command(config)}`, then switch readers"
            )
            yield Change(Class.REBUILD, key, old, text, f"{old} -> {text}: `{rebuild_command(config)}`", refused)


def _equal(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the keys, ids and equal fields with texts from before rule 465 in the tables."""
    for other in other_texts(config, last):
        reason = f"{other.column} is {other.type}, and equal values have one text now (1.0 and 1.00 are 1)"
        refused = (
            f"{other.setting}: {reason}, which the tables of an earlier release do not have; "
            f"rebuild the tables: `{rebuild_command(config)}`, then switch readers"
        )
        yield Change(
            Class.REBUILD, other.setting, other.type, other.type, f"{reason}: `{rebuild_command(config)}`", refused
        )


def _with_dots(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the columns that tables of before rule 460 call by names with dots, which mean fields now."""
    for input_, side in config.inputs.items():
        before = column_of(input_, "")
        stored = () if last.settings.paths else (name for name in last.settings.types if name.startswith(before))
        for name in (name.removeprefix(before) for name in stored if "." in name):
            reason = f"{name!r} is a column's name with a dot, and a dot means a field now (rule 460)"
            command = f"`{rebuild_command(config)}`"
            refused = (
                f"{side.event_at}: {reason}; write it in backquotes, rebuild the tables: {command}, then switch readers"
            )
            yield Change(Class.REBUILD, side.event_at, name, name_of([name]), f"{reason}: {command}", refused)


def _looked_up(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield new and removed lookups, and columns with a changed origin: a lookup in place of the source, or the other way round."""
    for input_, side in config.inputs.items():
        live = last.settings.live if input_ == EVENTS else last.settings.live.get(input_) or {}
        yield from _read_elsewhere(config, side, input_, last, set(live.get(LOOKED_UP) or ()))
        before = last.settings.rebuild.get(side.lookup_at) or {}
        now = {section.name: section.bound for section in side.lookup}
        for name in sorted(before.keys() - now.keys()):
            change = "- events are looked up no more"
            yield Change(Class.LIVE, f"{side.lookup_at}.{name}", before[name], None, change)
        missing = live.get(MISSING) or {}
        for section in side.lookup:
            key, old = f"{side.lookup_at}.{section.name}", missing.get(section.name)
            if section.name not in before:
                yield Change(Class.LIVE, key, None, section.bound, "+ events are looked up from the next batch on")
            elif old != section.missing:
                yield Change(Class.LIVE, f"{key}.{MISSING}", old, section.missing, f"{old} -> {section.missing}")


def _read_elsewhere(
    config: Config, side: Config, input_: str, last: BatchCommit, before: Collection[str]
) -> Iterator[Change]:
    now = {name: section.name for section in side.lookup for name in section.names}
    for name in sorted(now.keys() ^ before):
        was_read = column_of(input_, name) in last.settings.types
        reader = next((key for key, _ in users_of(side, name)), None)
        if was_read and reader is not None:
            key = f"{side.lookup_at}.{now[name]}.columns" if name in now else side.lookup_at
            source, lookup = f"of {side.source.AT}", f"of a {LOOKUP}"
            was, told = (source, lookup) if name in now else (lookup, source)
            refused = (
                f"{key}: {reader} has read {name!r} {was}, and would read it {told}; give one of the two another name, "
                f"or rebuild the tables: `{rebuild_command(config)}`, then switch readers"
            )
            lines = ("or give one of the two another name",)
            words = f"{name}: {was} -> {told}: `{rebuild_command(config)}`"
            yield Change(Class.REBUILD, key, was, told, words, refused, lines=lines)


def _live(config: Config, last: BatchCommit) -> Iterator[Change]:
    """Yield the changes of settings that each batch reads again."""
    before, now = (_without_lookups(live) for live in (last.settings.live, _plain(config.live_settings())))
    bound = config.rebuild_settings()
    for name in dict.fromkeys((*now, *before)):
        # A commit of before a setting was there has none, as if it was off.
        if name in _NOT_OF_THE_CONFIG or (not before.get(name) and not now.get(name)):
            continue
        for key, old, new in _differences(name, before.get(name), now.get(name)):
            change = f"{_spoken(key, old)} -> {_spoken(key, new)}"
            written = _key_in(config, key)
            # None is a setting to which only tables of some kinds are bound.
            if bound.get(written) is None and last.settings.rebuild.get(written) is None:
                yield Change(Class.LIVE, written, old, new, change)


def _without_lookups(live: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of classification, except for lookups, which each input may have."""
    return {
        name: _without_lookups(value) if isinstance(value, dict) else value
        for name, value in live.items()
        if name not in _OF_LOOKUPS
    }


def _restored(config: Config, last: BatchCommit, layout: str | None) -> Iterator[Change]:
    """Yield the changes after which the stores are restored."""
    reason = "the stores are restored from the tables"
    shards, engine = config.pipeline.shards, config.pipeline.store_engine
    settings = {"shards": (len(last.shards), shards), "store_engine": (engine_in(last.layout), engine)}
    changed = {name: pair for name, pair in settings.items() if pair[0] != pair[1]}
    for name, (before, now) in changed.items():
        yield Change(Class.RESTORE, f"pipeline.{name}", before, now, f"{before} -> {now}: {reason}")
    if not changed and layout is not None and last.layout != (now_layout := layout_of(shards, layout, engine)):
        yield Change(Class.RESTORE, "pipeline.store", last.layout, now_layout, reason)


def _key_in(config: Config, key: str) -> str:
    """Return the key in the config of a live setting.

    A setting of a section beside the operator's is named by it, one of a side by the side, and microseconds lack `_us`.
    """
    name, _, rest = key.partition(".")
    section, sides = type(config.section), config.section.sides
    if name in sides:
        return f"{sides[name].source.AT.removesuffix('source')}event.{rest.removesuffix('_us')}"
    if name in section.BESIDE:
        return key.removesuffix("_us")
    plain = name.removesuffix("_us")
    written = section.PATIENCE if plain == "grace" else plain
    if written in section.model_fields:
        return f"{config.operator}.{written}"
    if plain in type(config.pipeline).model_fields:
        return f"pipeline.{plain}"
    return f"{config.event_at}.{plain}"


def _differences(name: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, old, new) for each difference between two values of a setting, key by key if they are tables.

    >>> list(_differences("join", {"left": 1, "right": 2}, {"left": 1, "right": 3}))
    [('join.right', 2, 3)]
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield name, old, new
        return
    for key in dict.fromkeys((*new, *old)):
        yield from _differences(f"{name}.{key}", old.get(key), new.get(key))


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a commit has them: JSON values."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def _as_written(config: Config, key: str, value: Any) -> str:
    """Return the value of a setting to which tables are bound as a user writes it."""
    if value is None:
        return "none"
    if key in config.section.CUTS and isinstance(value, list):
        return config.section.before_in_words(value)
    of_operator = config.section.facts.bound_in_time and key.startswith(f"{config.operator}.")
    if of_operator and isinstance(value, int) and not isinstance(value, bool):
        return repr(spoken_duration(value))
    return repr(value)


def _spoken(key: str, value: Any) -> str:
    """Return a live setting's value in words.

    >>> _spoken("grace_us", 3_600_000_000), _spoken("archive", True), _spoken("ttl", None)
    ('1 hour', 'true', '(none)')
    """
    if value is None:
        return "(none)"
    if key.endswith("_us") and isinstance(value, int):
        return spoken_duration(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
