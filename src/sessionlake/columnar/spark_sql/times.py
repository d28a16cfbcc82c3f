"""Functions of times and dates for expressions, by their names in Spark's SQL."""

from collections.abc import Mapping

from sqlglot import exp

from sessionlake.columnar.datetime_letters import LettersError, read, written
from sessionlake.columnar.spark_sql.casts import cast_to
from sessionlake.columnar.spark_sql.typed import Function, Rule, Typed, Walk, once
from sessionlake.columnar.zones import FROM_UTC_FUNCTION, TO_UTC_FUNCTION, region_of

_DAY = "date|timestamp"
_DAYS = {"MO": 1, "TU": 2, "WE": 3, "TH": 4, "FR": 5, "SA": 6, "SU": 7}
_DAYS |= {"MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6, "SUN": 7}
_DAYS |= {"MONDAY": 1, "TUESDAY": 2, "WEDNESDAY": 3, "THURSDAY": 4, "FRIDAY": 5, "SATURDAY": 6, "SUNDAY": 7}
_MONTHS = "(year({0}) * 12 + month({0}))"
_IS_LAST = "day({0}) = day(last_day({0}))"
_SECONDS = "(day({0}) * 86400 + hour({0}) * 3600 + minute({0}) * 60 + second({0}))"


def _time(walk: Walk, node: exp.Expression) -> str:
    """Translate a part that must be a time; a date is its midnight."""
    part = walk.of(node)
    if part.type not in ("date", "timestamp", "null"):
        raise walk.error(node, f"is a {part.type}; cast it to timestamp")
    return part.sql if part.type == "timestamp" else f"cast({part.sql} as timestamp)"


def _pattern(walk: Walk, node: exp.Expression, pattern: exp.Expression) -> str:
    if not walk.seen(pattern).is_string:
        raise walk.error(node, "is not listed; write the pattern in quotes")
    return pattern.name


def _formatted(walk: Walk, node: exp.Expression) -> Typed:
    time, pattern = node.expressions
    letters = _pattern(walk, node, pattern)
    try:
        return Typed(once(written(letters), _time(walk, time)), "string")
    except LettersError as error:
        raise walk.error(node, str(error)) from error


def _read(type_: str) -> Rule:
    """Return the rule of `to_timestamp` and `to_date`, of a text with a pattern, or of what may be cast."""

    def rule(walk: Walk, node: exp.Expression) -> Typed:
        value, *pattern = node.expressions
        if not pattern:
            return cast_to(walk, value, walk.of(value), type_)
        letters = _pattern(walk, node, pattern[0])
        try:
            time = read(letters).format(walk.text(value))
        except LettersError as error:
            raise walk.error(node, str(error)) from error
        return Typed(time if type_ == "timestamp" else f"cast({time} as date)", type_)

    return rule


def _moved(function: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        time, zone = node.expressions
        return Typed(_in_zone(function, _time(walk, time), _zone(walk, zone)), "timestamp")

    return rule


def _converted(walk: Walk, node: exp.Expression) -> Typed:
    *zones, time = node.expressions
    sql = _time(walk, time)
    if len(zones) > 1:
        sql = _in_zone(TO_UTC_FUNCTION, sql, _zone(walk, zones[0]))
    return Typed(_in_zone(FROM_UTC_FUNCTION, sql, _zone(walk, zones[-1])), "timestamp")


def _in_zone(function: str, time: str, zone: str) -> str:
    return f"make_timestamp({function}(epoch_us({time}), {zone}))"


def _zone(walk: Walk, node: exp.Expression) -> str:
    """Translate the name of a zone; a name in quotes must be known."""
    if node.is_string and region_of(node.name) is None:
        raise walk.error(node, "is no time zone; write one as in 'Europe/Berlin', or '+01:00'")
    return walk.text(node)


def _months_between(walk: Walk, node: exp.Expression) -> Typed:
    later, earlier, *rounded = node.expressions
    is_rounded = walk.seen(rounded[0]) if rounded else None
    if is_rounded is not None and not isinstance(is_rounded, exp.Boolean):
        raise walk.error(node, "is not listed; write true or false for the rounding")
    left, right = _time(walk, later), _time(walk, earlier)
    months = f"({_MONTHS.format(left)} - {_MONTHS.format(right)})::double"
    # As in Spark: a month has 31 days here, and seconds are whole.
    sql = f"{months} + ({_SECONDS.format(left)} - {_SECONDS.format(right)})::double / 2678400::double"
    if is_rounded is None or is_rounded.this:
        sql = once(
            "(floor({0}) + case when {0} - floor({0}) >= 0.5 then 1 else 0 end) / 100000000::double",
            f"({sql}) * 100000000::double",
        )
    same = f"day({left}) = day({right}) or ({_IS_LAST.format(left)} and {_IS_LAST.format(right)})"
    return Typed(f"(case when {same} then {months} else {sql} end)", "double")


def _next_day(walk: Walk, node: exp.Expression) -> Typed:
    date, day = node.expressions
    name = walk.seen(day).name.upper()
    number = _DAYS.get(name) if day.is_string else None
    if number is None:
        raise walk.error(node, f"is not listed; write a day in quotes, of {', '.join(_DAYS)}")
    return Typed(
        once(f"{{0}} + cast(({number + 6} - isodow({{0}})) % 7 + 1 as integer)", f"cast({_time(walk, date)} as date)"),
        "date",
    )


TIME_RULES: Mapping[str, Rule] = {
    "date_format": _formatted,
    "to_timestamp": _read("timestamp"),
    "try_to_timestamp": _read("timestamp"),
    "to_date": _read("date"),
    "from_utc_timestamp": _moved(FROM_UTC_FUNCTION),
    "to_utc_timestamp": _moved(TO_UTC_FUNCTION),
    "convert_timezone": _converted,
    "months_between": _months_between,
    "next_day": _next_day,
}
TIME_FUNCTIONS: Mapping[str, Function] = {
    "last_day": Function("last_day({0})", "date", (_DAY,)),
    "add_months": Function(
        "cast(cast({0} as date) + to_months(cast({1} as integer)) as date)", "date", (_DAY, "bigint")
    ),
    "make_date": Function("try(make_date({0}, {1}, {2}))", "date", ("bigint", "bigint", "bigint")),
}
