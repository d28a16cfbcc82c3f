"""Harnesses of windows as a model describes them."""

from collections.abc import Sequence
from typing import Any

from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.windows.definition import HoppingWindows, SlidingWindows, TumblingWindows, WindowDefinition
from sessionlake.testing.windows import WindowHarness, WindowOutput
from tests.oracle.windows import Event, WindowModel


def definition(model: WindowModel) -> WindowDefinition:
    size, advance = f"{model.size} us", f"{model.advance} us"
    if model.kind == "sliding":
        windows: WindowDefinition = SlidingWindows.of(size, exits=model.exits)
    else:
        kind = TumblingWindows.of(size) if model.kind == "tumbling" else HoppingWindows.of(size, advance)
        windows = kind.offset(f"{model.offset % model.size} us")
    windows = windows.grace(f"{model.grace} us").until(f"{model.retention} us")
    return windows if model.keep is None else windows.keep(model.keep)


def emit(model: WindowModel) -> EmitSection:
    early, late = (text if isinstance(text, str) else f"{text} us" for text in (model.early, model.late))
    return EmitSection(early=early, full=model.full, late=late, tick_offset=f"{model.tick_offset} us")


def harness(model: WindowModel, shards: int) -> WindowHarness:
    if model.kind == "hopping":
        model.offset %= model.size
    return WindowHarness(
        definition(model),
        {"total": "sum(v)"},
        emit=emit(model),
        shards=shards,
        beyond_retention=model.beyond_retention,
        schema={"v": "long"},
    )


def rows(output: WindowOutput) -> list[tuple[Any, ...]]:
    names = ("window_key", "window_start", "window_end", "event_count", "total", "trigger")
    return sorted(tuple(row[name] for name in names) for row in output.changes)


def events(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["key"], row["time_us"], row["v"]) for row in rows]


def given_rows(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [{"key": key, "time_us": time, "v": value} for key, time, value in events]
