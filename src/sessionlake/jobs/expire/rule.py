"""Which sessions expire: a time to live, SQL over the session's row, or both; `now()` is the start of the run."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sessionlake.errors import JobError, NotNeededError, first_line

_SKIPPED = r"""
    --[^\n]*                                  # comments
  | /\*.*?\*/
  | \b[rR](?:'[^']*'|"[^"]*")                 # texts; in raw ones a backslash is one
  | '(?:\\.|''|[^'\\])*' | "(?:\\.|""|[^"\\])*"
  | `(?:``|[^`])*`                            # quoted names
"""
_NOW = r"""
    (?<![\w.`])(?:
        (?P<function>now|curdate|unix_timestamp)\s*\(\s*\)
      | (?P<word>current_timestamp|current_date|localtimestamp)\b(?:\s*\(\s*\))?
    )
"""
_MOVING = r"""
    (?<![\w.`])(?P<moving>(?:date|timestamp(?:_ltz|_ntz)?)\s*['"]\s*(?:now|today|tomorrow|yesterday)\b)
"""
_TOKEN = re.compile(rf"{_MOVING}|(?P<skipped>{_SKIPPED})|{_NOW}", re.VERBOSE | re.IGNORECASE | re.DOTALL)
_CLOCKS = ("CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", "CurrentBatchTimestamp")
_MOVING_TEXT = ("now", "today", "tomorrow", "yesterday")
_CATALYST = "org.apache.spark.sql.catalyst"


@dataclass(frozen=True)
class Rule:
    """A session expires where its end is older than the ttl, or where the SQL is true."""

    ttl_us: int | None
    where: str | None

    def __post_init__(self) -> None:
        if self.ttl_us is None and self.where is None:
            raise NotNeededError(
                "expire: no rule says what expires; write ttl = '90 days' or where = '<SQL>' into [expire], or pass --ttl or --where"
            )

    def matching(self, sessions: DataFrame, now_us: int) -> DataFrame:
        """Return the sessions that expire at a moment; in the SQL the row is called `session`. JobError in one line."""
        older = "" if self.ttl_us is None else f"session_end < timestamp_micros({now_us - self.ttl_us}L)"
        if self.where is None:
            return sessions.where(older)
        # A comment at the end of the SQL would hide a bracket that stands on its line.
        where = f"(\n{frozen(self.where, now_us)}\n)"
        try:
            chosen = sessions.alias("session").where(f"{where} or {older}" if older else where)
        except PySparkException as error:
            raise wrong_sql(error) from error
        _check_fixed(sessions.sparkSession, chosen)
        return chosen


def frozen(sql: str, now_us: int) -> str:
    """Return SQL in which the functions of the present time are replaced by a moment, outside of texts and comments."""
    moment = f"timestamp_micros({now_us}L)"
    values = {
        "now": moment,
        "current_timestamp": moment,
        "current_date": f"to_date({moment})",
        "curdate": f"to_date({moment})",
        "localtimestamp": f"cast({moment} as timestamp_ntz)",
        "unix_timestamp": f"unix_seconds({moment})",
    }

    def replaced(match: re.Match[str]) -> str:
        if match["moving"]:
            raise _differs(match["moving"] + "'")
        name = match["function"] or match["word"]
        return match[0] if name is None else values[name.lower()]

    return _TOKEN.sub(replaced, sql)


def wrong_sql(error: PySparkException) -> JobError:
    """Return what Spark says of the SQL, or of its running, in one line."""
    return JobError(f"where: {first_line(error)}; correct the SQL")


def _check_fixed(spark: SparkSession, chosen: DataFrame) -> None:
    """Refuse what would say otherwise in a retry: whatever still reads the clock, or is random."""
    is_a = _instance_check(spark)
    for expression in _expressions(chosen._jdf.queryExecution().analyzed(), is_a):  # noqa: SLF001
        if _varies(expression):
            raise _differs(str(expression.sql()))


def _differs(text: str) -> JobError:
    return JobError(
        f"where: {text!r} would differ from attempt to attempt; use now(), current_timestamp() or current_date(), which mean the run's start, and nothing random"
    )


def _varies(expression: Any) -> bool:
    name = expression.getClass().getSimpleName()
    if name in _CLOCKS:
        return True
    if not expression.deterministic():
        return all(child.deterministic() for child in _items(expression.children()))
    if name != "Cast" or expression.dataType().typeName() not in ("timestamp", "timestamp_ntz", "date"):
        return False
    child = expression.child()
    return bool(child.foldable()) and str(child.toString()).strip().lower() in _MOVING_TEXT


def _expressions(plan: Any, is_a: Callable[[Any, str], bool]) -> Iterator[Any]:
    """Yield all expressions of a plan and of the subqueries in it."""
    for expression in _items(plan.expressions()):
        yield from _nested(expression, is_a)
    for child in _items(plan.children()):
        yield from _expressions(child, is_a)


def _nested(expression: Any, is_a: Callable[[Any, str], bool]) -> Iterator[Any]:
    yield expression
    if is_a(expression, f"{_CATALYST}.expressions.PlanExpression"):
        yield from _expressions(expression.plan(), is_a)
    for child in _items(expression.children()):
        yield from _nested(child, is_a)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _instance_check(spark: SparkSession) -> Callable[[Any, str], bool]:
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    return lambda value, name: bool(is_instance_of(gateway, value, name))
