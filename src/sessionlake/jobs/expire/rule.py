"""Which rows expire: a time to live, SQL over the row, or both; `now()` is the start of the run."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot.dialects import Spark
from sqlglot.errors import TokenError

from sessionlake.errors import JobError, NotNeededError, first_line
from sessionlake.jobs.expire.plan_tree import PlanTree, scala_items
from sessionlake.jobs.expire.sql_scope import check_scope, without_files
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.changelog import Changelog

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

_CLOCKS = ("CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", "CurrentBatchTimestamp")
_TIMES = ("date", "timestamp", "timestamp_ltz", "timestamp_ntz")


@dataclass(frozen=True)
class Rule:
    """A row expires if its end is older than the ttl, or if the SQL is true."""

    ttl_us: int | None
    where: str | None

    def __post_init__(self) -> None:
        if self.ttl_us is None and self.where is None:
            raise NotNeededError(
                "expire: no rule says what expires; write ttl = '90 days' or where = '<SQL>' into [expire], or pass --ttl or --where"
            )

    def matching(self, rows: "DataFrame", now_us: int, tables: Collection[str], of: Changelog) -> "DataFrame":
        """Return the rows that expire at a moment. In the SQL a row is called `session`, `window`, `join` or `table`, as its changelog. JobError in one line.

        Besides the row, the SQL may read only the temporary views named in `tables`. Its author may be anyone who can
        start the job, and must not read all that the job's user can read.
        """
        older = "" if self.ttl_us is None else f"{of.aged_by} < timestamp_micros({now_us - self.ttl_us}L)"
        if self.where is None:
            return rows.where(older)
        # A comment at the end of the SQL would hide a bracket that stands on its line.
        where = f"(\n{frozen(self.where, now_us)}\n)"
        try:
            with without_files(rows.sparkSession):
                chosen = rows.alias(of.name).where(f"{where} or {older}" if older else where)
        except spark_names.PySparkException as error:
            raise wrong_sql(error) from error
        tree = PlanTree(chosen)
        check_scope(tree, PlanTree(rows), tables)
        _check_fixed(tree)
        return chosen


def frozen(sql: str, now_us: int, setting: str = "where") -> str:
    """Return SQL in which the functions of the present time are replaced by a moment; all else stays as it is written.

    Raises JobError in one line if the SQL can't be cut into words, or if a literal of a time means the present.
    """
    moment = f"timestamp_micros({now_us}L)"
    date = f"to_date({moment})"
    calls = {"now": moment, "curdate": date, "unix_timestamp": f"unix_seconds({moment})"}
    words = {"current_timestamp": moment, "current_date": date, "localtimestamp": f"cast({moment} as timestamp_ntz)"}
    try:
        tokens = Spark().tokenize(sql)
    except TokenError as error:
        raise JobError(
            f"{setting}: {sql!r} has a text, a quoted name or a comment without an end, or an X'...' that is no number; correct the SQL"
        ) from error
    # Texts and quoted names keep their quotes here, and so are never taken for a word.
    texts = ["", *(sql[token.start : token.end + 1].lower() for token in tokens), "", ""]
    pieces: list[str] = []
    done = 0
    for number, token in enumerate(tokens):
        before, text, *after = texts[number : number + 4]
        called = after == ["(", ")"]
        if before in _TIMES and text.endswith(("'", '"')) and _moves(token.text):
            raise _differs(f"{before} {text}", setting)
        if before != "." and (text in words or (called and text in calls)):
            pieces += sql[done : token.start], words.get(text) or calls[text]
            done = tokens[number + 2 * called].end + 1
    return "".join(pieces) + sql[done:]


def wrong_sql(error: "PySparkException") -> JobError:
    """Return Spark's error about the SQL, or about running it, in one line."""
    return JobError(f"where: {first_line(error)}; correct the SQL")


def _check_fixed(tree: PlanTree) -> None:
    """Refuse expressions that could give another result in a retry: random expressions, and expressions that still read the clock."""
    for expression in tree.expressions():
        if _varies(expression):
            raise _differs(str(expression.sql()))


def _differs(text: str, setting: str = "where") -> JobError:
    return JobError(
        f"{setting}: {text!r} would differ from attempt to attempt; use now(), current_timestamp() or current_date(), which mean the run's start, and nothing random"
    )


def _varies(expression: Any) -> bool:
    name = expression.getClass().getSimpleName()
    if name in _CLOCKS:
        return True
    if not expression.deterministic():
        return all(child.deterministic() for child in scala_items(expression.children()))
    if name != "Cast" or expression.dataType().typeName() not in ("timestamp", "timestamp_ntz", "date"):
        return False
    child = expression.child()
    return bool(child.foldable()) and _moves(str(child.toString()))


def _moves(text: str) -> bool:
    """Say whether Spark makes a text a time that depends on the present; a time zone may follow the word."""
    return text.strip().lower().startswith(("now", "today", "tomorrow", "yesterday"))
