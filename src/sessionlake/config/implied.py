"""Settings that follow from others of a config: from a preset, and from a format of times."""

from sessionlake.config.file import Raw
from sessionlake.config.presets import PRESETS
from sessionlake.config.read_upstream import sources_in

_TEXTS = ("json", "csv", "text")
"""The formats whose columns have the types that a config names."""


def with_presets(raw: Raw, *, patterns: bool = False) -> Raw:
    """Return a config's content with the format of times of presets, and the type of times that have a format.

    For people, `patterns` also puts the patterns beside the presets.
    """
    holders = [at.rpartition(".")[0] for at, _ in sources_in(raw)]
    for at in holders:
        raw = _at(raw, at.split(".") if at else [], patterns=patterns)
    return raw


def _at(raw: Raw, at: list[str], *, patterns: bool) -> Raw:
    if at:
        return {**raw, at[0]: _at(raw[at[0]], at[1:], patterns=patterns)}
    source, event = raw["source"], raw.get("event")
    event = event if isinstance(event, dict) else {}
    preset = PRESETS.get(str(source.get("preset")))
    if preset is not None and preset.time_format is not None and event.get("time") == preset.time:
        event = event if "time_unit" in event else {"time_format": preset.time_format, **event}
    if preset is not None and patterns:
        source = {
            **source,
            "pattern": preset.pattern,
            **({} if preset.comment is None else {"comment": preset.comment}),
        }
    types, time, computed = source.get("types", {}), event.get("time"), event.get("columns", {})
    is_column = isinstance(time, str) and isinstance(computed, dict) and time not in computed
    if "time_format" in event and is_column and source.get("format") in _TEXTS and isinstance(types, dict):
        source = {**source, "types": {time: "string", **types}}
    return {**raw, "source": source, **({"event": event} if event else {})}
