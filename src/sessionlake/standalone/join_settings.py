"""The settings of a join as its arguments say them: checked as the section [join] of a config is."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from sessionlake.config.durations import format_duration, parse_duration
from sessionlake.config.equal_columns import cast_columns, equal_columns
from sessionlake.errors import ConfigError
from sessionlake.operators.joins.spec import (
    HOPPING,
    KINDS,
    SESSION,
    SLIDING,
    TIME_AXIS,
    TUMBLING,
    UNBOUNDED,
    default_grace,
    least_retention,
    reaches_back,
)
from sessionlake.operators.shared.sides.names import LEFT, RIGHT
from sessionlake.standalone.emit import Emit

Length = str | int | None
"""A duration, by count a number of messages; None if it is not given."""
_OF_KIND = {SLIDING: (), TUMBLING: ("size",), HOPPING: ("size", "advance"), SESSION: ("gap",)}
"""The lengths that each kind of join needs."""


@dataclass(frozen=True)
class JoinSettings:
    """A join whose settings go together."""

    on: tuple[tuple[str, str], ...]
    sides: Mapping[str, Mapping[str, Any]]
    """name, size, columns and time of each side, as given."""
    sizes: Mapping[str, int | None]
    settings: Mapping[str, Any]
    """The other arguments of a `JoinSpec`."""
    casts: tuple[tuple[bool, bool], ...] = ()
    """For each pair of `on` which fields are compared as texts."""

    @classmethod
    def of(
        cls,
        *,
        sides: Mapping[str, Mapping[str, Any]],
        on: Sequence[str],
        by: str,
        kind: str,
        lengths: Mapping[str, Length],
        grace: str | None,
        retention: str | None,
        retention_count: int | None,
        idle: str,
        emit: Emit,
    ) -> Self:
        """Return settings; ConfigError if one is unknown or contradicts another."""
        for name, value, words in (("by", by, (TIME_AXIS, "count")), ("kind", kind, KINDS)):
            if value not in words:
                raise ConfigError(f"{name}: {value!r} is unknown; write {', '.join(words)}")
        by_time = by == TIME_AXIS
        known = {name: _length(name, length, by_time=by_time) for name, length in lengths.items()}
        _check_lengths(kind, known)
        settings = {
            "by": by,
            "kind": kind,
            **{name: length or 0 for name, length in known.items()},
            "grace_us": 0 if grace is None else parse_duration(grace, "grace"),
            "retention_us": 0 if retention is None else parse_duration(retention, "retention"),
            "retention_count": retention_count or 0,
            "idle_us": parse_duration(idle, "idle"),
            "emit": emit.of_joins(kind, by),
        }
        found = cls(
            tuple(_fields(text) for text in on),
            {side: dict(given) for side, given in sides.items()},
            {side: _size(side, given, by_time=by_time, kind=kind) for side, given in sides.items()},
            settings,
            tuple(map(cast_columns, on)),
        )
        found._check_sides()
        found._check_retention(by_time=by_time)
        return found if grace is not None or not by_time else found.with_grace(found._default_grace_us())

    def with_grace(self, grace_us: int) -> Self:
        """Return settings with another grace."""
        return replace(self, settings={**self.settings, "grace_us": grace_us})

    def _default_grace_us(self) -> int:
        settings, sizes = self.settings, (self.sizes[LEFT], self.sizes[RIGHT])
        retention = settings["retention_us"], settings["retention_count"]
        return default_grace(settings["kind"], sizes, self._least_retention(), *retention)

    def shown(self) -> dict[str, Any]:
        """Return all settings as JSON values, by the names of the arguments."""
        sides = {f"{side}.{name}": value for side, given in self.sides.items() for name, value in given.items()}
        emit = asdict(self.settings["emit"])
        return {"on": [list(pair) for pair in self.on], **sides, **self.settings, "emit": emit}

    def _check_sides(self) -> None:
        kind, left, right = self.settings["kind"], self.sides[LEFT], self.sides[RIGHT]
        if kind == SLIDING and self.sizes[LEFT] is None and self.sizes[RIGHT] is None:
            raise ConfigError("left.size: both sides have none; give one of them a size")
        if left["name"] == right["name"]:
            raise ConfigError(f"right.name: {right['name']!r} is that of left, too; write another one")
        if kind == SESSION and not self.on:
            raise ConfigError("on: is missing; sessions are of the messages of a key")

    def _check_retention(self, *, by_time: bool) -> None:
        settings = self.settings
        by_name = {"retention": settings["retention_us"], "retention_count": settings["retention_count"]}
        name = "retention" if by_time else "retention_count"
        for wrong in ["retention"] * bool(not by_time and by_name["retention"]) + ["grace"] * bool(
            not by_time and settings["grace_us"]
        ):
            raise ConfigError(f"{wrong}: does not go with by = {settings['by']!r}; leave it out")
        if (
            by_time
            and by_name["retention_count"]
            and reaches_back(settings["kind"], (self.sizes[LEFT], self.sizes[RIGHT]))
        ):
            raise ConfigError(
                "retention_count: is needed only with sizes on both sides, or with windows; here any stored message may have "
                "partners, leave it out"
            )
        least = max(self._least_retention(), 1)
        if by_name[name] < least:
            text = f"'{format_duration(least)}'" if by_time else str(least)
            raise ConfigError(f"{name}: is missing, or shorter than sizes and grace ask for; write {text} or more")

    def _least_retention(self) -> int:
        lengths = {name: self.settings[name] for name in ("size", "advance", "gap")}
        sizes = (self.sizes[LEFT], self.sizes[RIGHT])
        return int(least_retention(self.settings["kind"], sizes, **lengths) + self.settings["grace_us"])


def _check_lengths(kind: str, known: Mapping[str, int | None]) -> None:
    """Refuse lengths of other kinds of joins, and lengths that are missing or too short."""
    needed = _OF_KIND[kind]
    allowed = (*needed, "offset") if kind in (TUMBLING, HOPPING) else needed
    for name, length in known.items():
        if length is None and name in needed:
            raise ConfigError(f"{name}: is missing; {kind} joins need it")
        if length is not None and name not in allowed:
            raise ConfigError(f"{name}: is not of {kind} joins; leave it out")
        if length == 0 and name in needed:
            raise ConfigError(f"{name}: 0 must be longer than zero")
    if kind == HOPPING and (known["advance"] or 0) > (known["size"] or 0):
        raise ConfigError("advance: is more than the size; between windows messages would have no partners")


def _size(side: str, given: Mapping[str, Any], *, by_time: bool, kind: str) -> int | None:
    """Return the size of a side; ConfigError for a key that a side does not have."""
    unknown = given.keys() - {"name", "size", "columns", "time"}
    if unknown or "name" not in given:
        wrong = f"{min(unknown)!r} is unknown" if unknown else "'name' is missing"
        raise ConfigError(f"{side}: {wrong}; write name, size, columns and time")
    if given.get("time", "") is None and by_time:
        raise ConfigError(f"{side}.time: None goes with by = 'count'; write the column of the event time")
    if given.get("size") is not None and kind != SLIDING:
        raise ConfigError(f"{side}.size: is of sliding joins, and this one is {kind}; write the join's own size")
    size = given.get("size")
    return None if size == UNBOUNDED else _length(f"{side}.size", size, by_time=by_time)


def _fields(text: str) -> tuple[str, str]:
    pair = equal_columns(text)
    if pair is None:
        raise ConfigError(
            f"on: {text!r} names no fields; write 'id', or 'order_id = id', and backquotes around a name with ="
        )
    return pair


def _length(name: str, value: Length, *, by_time: bool) -> int | None:
    """Return a length on the axis; ConfigError if it is of the other one."""
    if value is None:
        return None
    if isinstance(value, int) == by_time:
        wrong, right = ("no duration", "'1 minute'") if by_time else ("no number of messages", "100")
        raise ConfigError(f"{name}: {value!r} is {wrong}; write one, as in {right}")
    length = parse_duration(str(value), name) if by_time else int(value)
    if length < 0 or (not by_time and length < 1 and name != "offset"):
        raise ConfigError(f"{name}: {value!r} is too few messages; write 1 or more")
    return length
