"""Which columns are key, time and id, by their names and values, and which aggregates fit the others."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.column_names import is_within, parts_of, title_of
from sessionlake.columnar.time_formats import TimeFormat
from sessionlake.config.config import COLUMN
from sessionlake.config.names import RESERVED
from sessionlake.errors import ConfigError
from sessionlake.operators.sessions.section import SessionSection
from sessionlake.propose.sample import Sample
from sessionlake.sources.columns import TIME_UNITS
from sessionlake.sources.decoding.casting import parse_times

KEY_NAMES = re.compile(
    r"(user|customer|account|visitor|client|device|member|author|actor|sensor|machine|vehicle|player|subscriber)(_?(id|key|uuid|name))?"
    r"|(anonymous|principal|user_?pseudo|domain_?user)_?id|uid|key"
)
TIME_NAMES = re.compile(r"(event_?)?(time|timestamp|ts|datetime)|(occurred|happened)_?(at|on)?")
_LIKE_A_TIME = re.compile(r"(?i:time|date|(^|_)(ts|at|on|when|epoch|created)($|_))|At$")
_LIKE_AN_ID = re.compile(r"(?i:(^|_)(id|uuid|guid)$)|I[dD]$")
_LIKE_A_CODE = re.compile(
    r"(?:^|_|(?<=[a-z])(?=[A-Z]))(?i:status|code|zip|plz|phone|version|number|offset|partition|namespace|revision|idx|index"
    r"|port|lat(?:itude)?|lon(?:gitude)?|lng)$|(?i:urlport|idx)$"
)
"""Names of numbers whose sum has no meaning."""
_LIKE_A_DURATION = re.compile(r"(?i:(^|_)(ms|us|ns|secs?|seconds|millis)$|duration|latency|elapsed)")
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_FROM_S, _TO_S = 946_684_800, 4_102_444_800
"""2000 and 2100 as seconds since the epoch: numbers in between, in some unit, may be times."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_AT_LEAST = 0.95
_MOST_AGGREGATES, _MOST_LISTED = 8, 20
_DISTINCT = "_distinct"
_WIDEST_DECIMAL = 18


@dataclass(frozen=True)
class NearlyNumbers:
    """A column of text most of whose values are numbers."""

    others: float
    """Share of values that are no numbers."""
    example: str
    """An example of such a value."""
    aggregate: tuple[str, str]
    """Name and function of the aggregate, if the column had numbers."""


@dataclass(frozen=True)
class Choice:
    """The columns that make an event, and a session."""

    key: str
    time: str
    time_unit: str | None
    time_format: str | None
    """The format of the time, of a log with a preset."""
    id: str | None
    repeated: float
    """Share of the rows whose id an earlier row of the sample has."""
    aggregates: dict[str, str]
    """The aggregates in the config."""
    others: dict[str, str]
    """More, which it mentions."""
    columns: tuple[str, ...]
    """The columns of these aggregates."""
    nearly_numbers: dict[str, NearlyNumbers]
    """Text columns that would be numbers except for a few values."""
    left_out: tuple[str, ...] = ()
    """Lists, which no aggregate suggests itself for."""

    @property
    def time_form(self) -> str | TimeFormat | None:
        """The unit of times that are numbers, or the format of texts."""
        return self.time_unit if self.time_format is None else TimeFormat(self.time_format)


def choose(sample: Sample, key: str | None = None, time: str | None = None) -> Choice:
    """Return the choice; `key` and `time` are taken as they are given. Of a log with a preset they are the preset's, if they are not clear.

    ConfigError, which lists the candidates, if one is not given and not clear, or is no column that can be it.
    """
    head = sample.head()
    units = time_candidates(sample, head)
    time = _column("time", time, sample, units, TIME_NAMES)
    if time not in units:
        units[time] = unit_of(head[time], time, strict=False)
        if units[time] == "":
            others = [name for name in units if name != time]
            raise ConfigError(
                f"--time: {time!r} holds no times; pass --time with {f'one of: {_listed(others)}' if others else 'a column that does'}"
            )
    keys = [name for name in key_candidates(sample, head) if name not in units]
    key = _column("key", key, sample, keys, KEY_NAMES)
    of_preset = sample.preset if sample.preset is not None and sample.preset.time == time else None
    found_id = _id([name for name in sample.types if name not in (key, time)], head)
    left = (name for name in sample.types if name not in (key, time, found_id, *units))
    rest = sorted((name for name in left if COLUMN.fullmatch(_spoken(name))), key=lambda name: len(parts_of(name)))
    nearly = {name: found for name in rest if (found := _nearly_numbers(name, sample))}
    plain = _apart({name: _aggregate(name, head[name]) for name in rest if name not in nearly})
    proposed = dict(plain.values())
    # Measures first, which say more than numbers of different values; and columns before fields.
    names = sorted(proposed, key=lambda name: name.endswith(_DISTINCT))
    return Choice(
        key,
        time,
        units[time],
        None if of_preset is None else of_preset.time_format,
        found_id,
        0.0 if found_id is None else _repeated(sample, found_id),
        {name: proposed[name] for name in names[:_MOST_AGGREGATES]},
        {name: proposed[name] for name in names[_MOST_AGGREGATES:]},
        tuple(plain),
        nearly,
        tuple(name for name, kind in sample.types.items() if pa.types.is_nested(kind)),
    )


def _apart(proposed: Mapping[str, tuple[str, str] | None]) -> dict[str, tuple[str, str]]:
    """Return the aggregates by column, without those whose name an earlier one has: names that differ only in case are one name in SQL."""
    found: dict[str, tuple[str, str]] = {}
    names: set[str] = set()
    for column, aggregate in proposed.items():
        if aggregate is not None and aggregate[0].lower() not in names:
            found[column] = aggregate
            names.add(aggregate[0].lower())
    return found


def time_candidates(sample: Sample, head: pa.Table) -> dict[str, str | None]:
    """Return the columns of times, each with the unit of its numbers; None for timestamps and text."""
    units = {name: unit_of(head[name], name, strict=True) for name in sample.types}
    if sample.preset is not None:
        units[sample.preset.time] = None
    return {name: unit for name, unit in units.items() if unit != ""}


def key_candidates(sample: Sample, head: pa.Table) -> list[str]:
    """Return the columns whose values come again, as a key's do."""
    return [name for name in sample.types if _is_key(head[name])]


def _column(what: str, given: str | None, sample: Sample, found: object, names: re.Pattern[str]) -> str:
    """Return the given column, otherwise the one that is clear.

    A column is clear if it is the only candidate, the only one with a usual name, the only one among these that is
    called an id, or the only one of all these that is no field of another column.
    """
    candidates = list(found)  # type: ignore[call-overload]
    if given is not None:
        return _given(what, given, sample)
    if sample.preset is not None:
        return sample.preset.key if what == "key" else sample.preset.time
    usual = [name for name in candidates if _is_usual(name, names)]
    called_ids = [name for name in usual if _LIKE_AN_ID.search(_spoken(name))]
    for clear in (candidates, usual, called_ids, _at_the_top(called_ids), _at_the_top(usual or candidates)):
        if len(clear) == 1:
            return str(clear[0])
    # A usual name is worth a look, even if many rows have no value.
    likely = usual or [*dict.fromkeys([*(name for name in sample.types if _is_usual(name, names)), *candidates])]
    listed = _listed(likely) if likely else f"any of {_listed(sample.types)}"
    raise ConfigError(f"--{what}: which column is the {what} is not clear; pass --{what} with one of: {listed}")


def _given(what: str, given: str, sample: Sample) -> str:
    """Return a column that the user named; ConfigError if the sample has none, or if its values have parts."""
    kind = sample.types.get(given)
    if kind is not None and pa.types.is_nested(kind):
        raise ConfigError(
            f"--{what}: {given!r} is a list; pass a column of plain values, or compute one in [event.columns], for example from {given}[0]"
        )
    if kind is not None:
        return given
    fields = [name for name in sample.types if name.startswith(f"{given}.")]
    if fields:
        raise ConfigError(f"--{what}: {given!r} has fields; pass one of {_listed(fields)}")
    known = f"pass one of {_listed(sample.types)}"
    listed = next(
        (name for name, kind in sample.types.items() if pa.types.is_list(kind) and _is_below(given, name)), None
    )
    if listed is not None:
        raise ConfigError(
            f"--{what}: {given!r} is of the elements of {listed!r}, and rows are proposed for; {known}, and write event.explode = {listed!r} "
            f"and event.{what} = {given!r} into the config"
        )
    if sample.preset is not None:
        log = f"no column {given!r} of the preset {sample.source['preset']!r}"
        raise ConfigError(f"--{what}: {log}; {known}, or write a config with source.pattern in place of source.preset")
    raise ConfigError(f"--{what}: no column {given!r}; {known}")


def _is_below(given: str, name: str) -> bool:
    try:
        return is_within(given, name)
    except ValueError:  # no name of a column
        return False


def _is_usual(name: str, names: re.Pattern[str]) -> bool:
    return any(names.fullmatch(known.lower()) for known in (_spoken(name), title_of(name)))


def _at_the_top(names: Sequence[str]) -> list[str]:
    return [name for name in names if len(parts_of(name)) == 1]


def _listed(names: Collection[str]) -> str:
    """Return names for an error, the first of many."""
    rest = len(names) - _MOST_LISTED
    return ", ".join([*names][:_MOST_LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def _spoken(name: str) -> str:
    """Return a name by which a column is judged: the last two fields of a path, with `_` for the dot.

    >>> _spoken("user_id"), _spoken("payload.user.id")
    ('user_id', 'user_id')
    """
    return "_".join(parts_of(name)[-2:])


def unit_of(values: pa.ChunkedArray, name: str, *, strict: bool) -> str | None:
    """Return the unit of a column's times, None for timestamps, dates and text, "" if it holds none.

    `strict`: numbers, also in texts, are times only if the column's name says so, too.
    """
    present = _numbers(values.drop_null())
    if not len(present):
        return ""
    if pa.types.is_integer(present.type) or pa.types.is_floating(present.type):
        if strict and not _LIKE_A_TIME.search(_spoken(name)):
            return ""
        numbers = present.to_numpy()
        for unit in TIME_UNITS:
            low, high = _FROM_S * _PER_SECOND[unit], _TO_S * _PER_SECOND[unit]
            if np.mean((numbers >= low) & (numbers < high)) >= _AT_LEAST:
                return unit
        return ""
    temporal = pa.types.is_timestamp(present.type) or pa.types.is_date(present.type)
    if not temporal and present.type != pa.string():
        return ""
    _, bad = parse_times(present, None)
    return None if 1 - np.mean(bad) >= _AT_LEAST else ""


def _numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals, and texts that are hardly anything but numbers, as doubles."""
    if pa.types.is_decimal(values.type):
        return values.cast(pa.float64())
    if values.type != pa.string():
        return values
    numbers = values.filter(pc.match_substring_regex(values, _NUMBER))
    return numbers.cast(pa.float64()) if len(numbers) and len(numbers) >= _AT_LEAST * len(values) else values


def _may_identify(kind: pa.DataType) -> bool:
    """Say whether a key or id may be of a type: texts and whole numbers, which some databases keep as decimals."""
    return kind in (pa.string(), pa.int64()) or (pa.types.is_decimal(kind) and kind.scale == 0)


def _is_key(values: pa.ChunkedArray) -> bool:
    if not _may_identify(values.type) or values.null_count > len(values) / 10:
        return False
    distinct = len(pc.unique(values.drop_null()))
    return 1 < distinct <= 0.9 * len(values)


def _id(names: list[str], head: pa.Table) -> str | None:
    """Return the column that is called an id and whose values come again the least, if they hardly do."""
    shares = {name: _distinct_share(head[name]) for name in names if _LIKE_AN_ID.search(_spoken(name))}
    likely = [name for name, share in shares.items() if share >= _AT_LEAST]
    return max(likely, key=lambda name: (shares[name], -len(parts_of(name))), default=None)


def _distinct_share(values: pa.ChunkedArray) -> float:
    """Return distinct values as a share of all rows; 0 for a type that no id can have."""
    if not _may_identify(values.type):
        return 0.0
    return len(pc.unique(values.drop_null())) / max(1, len(values))


def _repeated(sample: Sample, name: str) -> float:
    present = sample.column(name).drop_null()
    return 1 - len(pc.unique(present)) / max(1, len(present))


def _nearly_numbers(name: str, sample: Sample) -> NearlyNumbers | None:
    """Return how near to numbers a column of text is; None if it is of another type, or not near."""
    if sample.types[name] != pa.string():
        return None
    texts = sample.column(name).drop_null()
    wrong = texts.filter(pc.invert(pc.match_substring_regex(texts, _NUMBER)))
    others = len(wrong)
    if name in sample.numbers:  # of JSON, in which a number in quotes is a text, too
        others = max(others, len(texts) - round(sample.numbers[name] * sample.rows))
    if not len(wrong) or others > (1 - _AT_LEAST) * len(texts):
        return None
    aggregate = _aggregate(name, pa.chunked_array([pa.array([0.0])]))
    return aggregate and NearlyNumbers(others / len(texts), wrong[0].as_py(), aggregate)


def _aggregate(name: str, values: pa.ChunkedArray) -> tuple[str, str] | None:
    """Return a name and a function for a column; None if none suggests itself."""
    kind = values.type
    if values.null_count == len(values) or pa.types.is_nested(kind):
        return None
    spoken = _spoken(name)
    is_id, is_code = (bool(names.search(spoken)) for names in (_LIKE_AN_ID, _LIKE_A_CODE))
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not is_plain(kind):
        # A decimal that is too wide for an aggregate.
        return None if is_id or is_code else _named(f"{spoken}_sum", f"sum(cast({name} as double))")
    is_text = pa.types.is_string(kind)
    as_number = None if not is_text or is_id or is_code or _LIKE_A_TIME.search(spoken) else _number_in(values)
    if as_number is not None:
        return _named(f"{spoken}_sum", f"sum(cast({name} as {as_number}))")
    if is_text or (number and (is_id or is_code)):
        return _named(f"{spoken}{_DISTINCT}", f"count_distinct({name})") if _varies(values, is_id=is_id) else None
    if number and _LIKE_A_DURATION.search(spoken):
        return _named(f"{spoken}_p95", f"percentile({name}, 0.95)")
    return _named(f"{spoken}_sum", f"sum({name})") if number else None


def _number_in(texts: pa.ChunkedArray) -> str | None:
    """Return the type of numbers that all texts are, without zeros in front as codes have; None for other texts.

    >>> _number_in(pa.chunked_array([["7", "12"]])), _number_in(pa.chunked_array([["7", "1.5"]])), _number_in(pa.chunked_array([["07"]]))
    ('bigint', 'double', None)
    """
    for pattern, kind in ((r"^-?(0|[1-9]\d{0,17})$", "bigint"), (r"^-?(0|[1-9]\d{0,14})(\.\d+)?$", "double")):
        if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            return kind
    return None


def _varies(values: pa.ChunkedArray, *, is_id: bool) -> bool:
    """Say whether the number of different values says something: not of a constant, nor of ids of the rows themselves."""
    distinct = len(pc.unique(values.drop_null()))
    return distinct > 1 and not (is_id and distinct >= _AT_LEAST * len(values))


def is_plain(kind: pa.DataType) -> bool:
    """Say whether a table can have a column of a type."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _WIDEST_DECIMAL)
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def _named(name: str, function: str) -> tuple[str, str] | None:
    return None if name.lower() in RESERVED | SessionSection.RESERVED else (name, function)
