"""A pipeline's status in words, and as one object."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sessionlake.cli.layout import laid_out
from sessionlake.cli.shared import format_time
from sessionlake.config.durations import format_duration, parse_duration, rough_duration
from sessionlake.config.load import Config
from sessionlake.config.names import EVENT_INPUT

if TYPE_CHECKING:
    from sessionlake.jobs.followers.positions import FollowerState
    from sessionlake.observe.status import Status
    from sessionlake.observe.upstream import LookupState, UpstreamState

_LABEL = 13
_EXPLAINED_US = 3_600_000_000
"""A lag of less is that of a stream at work, and needs no word."""
_COLUMNS = ("batch", "events", "late", "dead", "upserts", "deletes", "seconds", "watermark")
_ALARMS = ("reconciles", "error", "config")
_SHOWN_ALWAYS = ("accepted", "late", "dead")


def rendered(config: Config, status: "Status", now_us: int, width: int | None) -> RenderableType:
    """Return a pipeline's status for people, with lag and age as of `now_us`.

    `width` is that of a terminal; without it each line is as long as it needs.
    """
    head = Text.assemble(
        (config.pipeline.name, "bold"),
        f"  batch {status.batch_id}, last commit {rough_duration(now_us - status.committed_us)} ago, "
        f"changelog version {status.changelog_version}",
    )
    batches, _ = laid_out(_COLUMNS, _batches(status), width, grouped=True)
    lines = status_lines(config, status, now_us)
    if width is None:
        return Group(head, *(Text(f"{label:<{_LABEL}}{value}") for label, value in lines), batches)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_LABEL - 1)
    grid.add_column(overflow="fold")
    for label, value in lines:
        grid.add_row(label, Text(value, style="red" if label in _ALARMS and value != "yes" else ""))
    return Group(head, grid, batches)


def status_lines(config: Config, status: "Status", now_us: int) -> list[tuple[str, str]]:
    """Return the lines of a status: label and value of each."""
    late = status.late
    texts = [
        ("watermark", _watermark(status, now_us)),
        ("events", _counted(status.counts)),
        ("unique", _unique(status)),
        ("lookups", _lookups(status, now_us)),
        ("reads", "; ".join(map(_read, status.reads))),
        ("late events", f"{late.events:,} = {late.reprocessed:,} reprocessed + {late.expired:,} expired + {late.waiting:,} waiting"),
        ("corrections", "{corrections:,}: {applied:,} applied, {stale:,} stale, {expired:,} expired".format(**status.counts)),
        ("rows", "" if status.rows is None else f"{status.rows:,}"),
        ("expiry", _expiry(config, status)),
        ("evicted", "" if status.evicted is None else f"{status.evicted:,} before ttl.changelog_retention was over"),
        ("followers", "; ".join(_follower(one, now_us) for one in status.followers)),
        ("reconciles", "yes" if status.reconciles else "NO: the counts and the tables' rows differ"),
        ("error", "" if status.failure is None else f"the last run failed {rough_duration(now_us - status.failure.at_us)} ago: {status.failure.error}"),
        ("config", "" if status.refused is None else f"a run would be refused: {status.refused}"),
        ("store", f"{status.store_bytes / 1e6:,.1f} MB in {status.store_dir}"),
        ("checkpoint", status.checkpoint),
    ]  # fmt: skip
    return [(label, value) for label, value in texts if value]


def status_object(config: Config, status: "Status", now_us: int) -> dict[str, Any]:
    """Return a status as one object: times as ISO text in UTC, durations in seconds, null for values that the pipeline does not have."""
    return {
        "pipeline": config.pipeline.name,
        "batch_id": status.batch_id,
        "changelog_version": status.changelog_version,
        "committed_at": _time(status.committed_us),
        "watermark": _time(status.watermark_us),
        "watermark_lag_seconds": None if status.watermark_us is None else (now_us - status.watermark_us) / 1e6,
        "reconciles": status.reconciles,
        "refused": status.refused,
        "unique_since": dict(status.unique_since) or None,
        "counts": status.counts,
        "lookups": [_lookup(one) for one in status.lookups] or None,
        "reads": [asdict(one) for one in status.reads] or None,
        "followers": [_follower_object(one, now_us) for one in status.followers] or None,
        "late": asdict(status.late),
        "rows": status.rows,
        "evicted": status.evicted,
        "expiry_lag_seconds": _seconds(status.expiry_lag_us),
        "cleanup_round_seconds": _seconds(status.cleanup_round_us),
        "store_bytes": status.store_bytes,
        "store_dir": status.store_dir,
        "checkpoint": status.checkpoint,
        "last_batches": status.last_batches,
    }


def _read(one: "UpstreamState") -> str:
    """Return how far the results of another pipeline are read."""
    behind = "whose tables are gone" if one.behind is None else f"{one.behind:,} behind"
    return f"{one.name} up to its batch {one.batch_id:,}, {behind}"


def _lookup(one: "LookupState") -> dict[str, Any]:
    found = asdict(one)
    made_us = found.pop("made_us")
    return {**found, "made_at": _time(made_us)}


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def _counted(counts: dict[str, int]) -> str:
    """Return the outcomes of the events; rare outcomes only if there are any."""
    rare = [name for name in ("dropped", "emitted", "filtered", "duplicate") if counts[name]]
    parts = " + ".join(f"{counts[name]:,} {name}" for name in (*_SHOWN_ALWAYS, *rare))
    return f"{counts['input']:,} = {parts}"


def _unique(status: "Status") -> str:
    """Return since when each event counts once."""
    since = status.unique_since
    if tuple(since) == (EVENT_INPUT,):
        return f"each event counts once since batch {since[EVENT_INPUT]:,}"
    return ", ".join(f"each event of {name} counts once since batch {batch:,}" for name, batch in since.items())


def _lookups(status: "Status", now_us: int) -> str:
    """Return which version of each table the last batch has read."""
    found = []
    for one in status.lookups:
        text = f"{one.name} version {one.version}, made {rough_duration(now_us - one.made_us)} ago: "
        text += f"{one.found:,} found and {one.missing:,} missing in the last batch"
        found.append(text if one.refused is None else f"{text}, and {one.refused}, so it is not used")
    return "; ".join(found)


def _watermark(status: "Status", now_us: int) -> str:
    if status.watermark_us is None:
        return "-"
    lag_us = now_us - status.watermark_us
    place = "lags {} behind" if lag_us >= 0 else "is {} ahead of"
    text = f"{format_time(status.watermark_us)} UTC: event time {place.format(rough_duration(lag_us))} the clock"
    if lag_us < _EXPLAINED_US:
        return text
    age_us = status.committed_us - status.watermark_us
    if age_us < lag_us / 2:
        return f"{text}, since no newer events have come in"
    return f"{text}; the newest events were {rough_duration(age_us)} old when they were read"


def _expiry(config: Config, status: "Status") -> str:
    """Return the results of the last cleanup of [ttl]."""
    texts = [] if status.expiry_lag_us is None else [f"lag {format_duration(status.expiry_lag_us)}"]
    if status.cleanup_round_us is not None:
        texts.append(f"a round takes {format_duration(status.cleanup_round_us)}")
        ttl = config.live_settings()["ttl"].get("ttl")
        if ttl is not None and status.cleanup_round_us > parse_duration(ttl) / 2:
            texts.append("more than half of ttl.ttl: raise ttl.max_duration or shorten ttl.every")
    return ", ".join(texts)


def _follower(one: "FollowerState", now_us: int) -> str:
    """Return how far a pipeline behind or a sink is."""
    if one.unreadable is not None:
        return f"{one.name} NOT READABLE: {one.unreadable}"
    place = "has no batch yet" if one.batch_id is None else f"is at batch {one.batch_id:,}"
    if not one.behind:
        return f"{one.name} {place}"
    seconds = one.behind_s(now_us) or 0
    return f"{one.name} {place}, {one.behind:,} behind for {rough_duration(round(seconds * 1e6))}"


def _follower_object(one: "FollowerState", now_us: int) -> dict[str, Any]:
    found = asdict(one)
    found.pop("lacks_since_us")
    return {**found, "behind_seconds": one.behind_s(now_us)}


def _batches(status: "Status") -> list[list[Any]]:
    return [
        [
            row["batch_id"],
            *(row[name] for name in ("input", "late", "dead", "upserts", "deletes")),
            round((row["committed_at"] - row["started_at"]).total_seconds(), 1),
            row["watermark"] and row["watermark"].replace(microsecond=0),
        ]
        for row in status.last_batches
    ]
