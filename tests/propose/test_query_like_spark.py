"""For random queries, Spark's batch over the events and the pipeline that `init --sql` makes of the query agree."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tests.propose.query_support import Row, events, made_of, plain, sample_of, selected, table_of

SEEDS = 3
CONDITIONS = [
    "type = 'buy'",
    "price > 3",
    "quantity * 2 >= 4 and price is not null",
    "type in ('buy', 'view') or quantity = 1",
    "e.price between 1 and 12.5",
    "not (type = 'view')",
    "coalesce(quantity, 0) > 1 -- few\n",
    "hour(happened_at) < 6",
    "buys is not true",
    "HAPPENED_AT >= timestamp '2026-01-01 03:00:00'",
    "tenant like 'a%' and type <=> null",
    "case when quantity > 2 then price > 5 else true end",
]
AGGREGATES = [
    "count(*)",
    "count(1)",
    "COUNT(price)",
    "count(distinct type)",
    "sum(price)",
    "sum(e.price * e.quantity)",
    "sum(quantity) filter (where type = 'buy')",
    "count(*) filter (where price > 2 or quantity is null)",
    "min(price)",
    "max(type)",
    "max(Happened_At)",
    "avg(quantity)",
    "mean(price * 2)",
    "count_if(type = 'buy')",
    "bool_or(quantity > 2)",
    "every(price > 1)",
    "stddev(price)",
    "max_by(event_id, event_id)",
    "min(coalesce(type, 'none'))",
    "median(price)",
    "percentile(quantity, 0.25)",
    "sum(case when buys then 1 else 0 end)",
    "max(if(type = 'buy', quantity, null)) filter (where buys)",
]
COMPUTED = [
    "sum(price) / count(*)",
    "sum(e.price * quantity) / nullif(sum(quantity) filter (where buys or price > 4), 0) - 1",
    "coalesce(MAX(price), 0) + count(*) - min(quantity)",
    "case when count(distinct type) > 2 then 'many' else min(type) end",
    "max(happened_at) + interval 5 minutes",
    "date_trunc('hour', min(happened_at))",
    "count(*) > 2 and max(quantity) < 5",
    "cast(avg(quantity) as int) % 2",
    "'of ' || max(tenant)",
    "7",
]
"""Expressions of aggregates."""
HAVING = [
    "",
    "",
    " having count(*) > 1",
    " having sum(price) / count(*) > 5 or max(type) = 'view'",
    " having count(*) filter (where buys) = 1 and not (min(price) > 3)",
    " having last is not null",
]
KEYS = [
    [],
    ["tenant"],
    ["user_id"],
    ["e.tenant", "e.user_id"],
    ["user_id", "tenant"],
    ["coalesce(type, '-')"],
    ["tenant", "user_id % 2"],
    ["date_trunc('hour', happened_at)"],
    ["cast(happened_at as date)", "tenant"],
    ["hour(happened_at) < 4"],
]
SESSIONS = [
    "session_window(happened_at, '150 seconds')",
    "session_window(e.happened_at, '7 minutes 30 seconds')",
    'session_window(Happened_At, "45 seconds")',
    "SESSION_WINDOW(happened_at, '1 hour 1 second')",
    "session_window(happened_at, case when type = 'buy' then '630 seconds' when quantity > 2 then '90 seconds' else '30 seconds' end)",
]
WINDOWS = [
    "window(happened_at, '10 minutes')",
    "window(e.happened_at, '1 hour')",
    "WINDOW(happened_at, '30 minutes', '10 minutes')",
    "window(happened_at, '25 minutes', '10 minutes')",
    "window(happened_at, '1 hour', '1 hour', '7 minutes')",
    "window(Happened_at, '20 minutes', '5 minutes', '-2 minutes')",
    "window(happened_at, '15 minutes', '15 minutes')",
]


LAYERS = [
    ["*"],
    ["e.*"],
    ["*", "price * quantity as amount"],
    ["* except (price, type)", "price + 1 as price", "coalesce(type, 'none') as Type"],
    ["cast(quantity as double) as price", "cast(price as bigint) as quantity", "* except (quantity, price)"],
    ["quantity as price_2", "price_2 + 1 as one_more", "*"],
    [
        "e.tenant",
        "user_id % 2 as user_id",
        "happened_at + interval 5 minutes as happened_at",
        "e.type",
        "case when buys or quantity > 3 then price end as price",
        "coalesce(quantity, 1) as quantity",
        "type = 'buy' as buys",
        "event_id",
    ],
]
"""The items of subqueries whose columns have the names of the events' columns, and not always the same meaning."""


class Sources:
    """Draws what FROM reads: the events, or subqueries over them, in brackets or by a name of WITH."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._named: list[str] = []

    def source(self) -> str:
        source = "lake.events"
        for items in self._draw(st.lists(st.sampled_from(LAYERS), max_size=3, unique_by=str)):
            query = f"select {', '.join(items)} from {source} e{self._draw(conditions())}"
            if self._draw(st.booleans()):
                source = f"({query})"
            else:
                self._named.append(f"s{len(self._named)} as ({query})")
                source = f"s{len(self._named) - 1}"
        return source

    def before(self, query: str, *named: str) -> str:
        """Return a query with its WITH."""
        subqueries = [*self._named, *named]
        return f"with {', '.join(subqueries)} {query}" if subqueries else query


@dataclass(frozen=True)
class Case:
    """A random query, over the events of a seed, in a number of batches."""

    query: str
    seed: int
    batches: int
    samples: int = 1


@st.composite
def grouped(draw: st.DrawFn, spans: list[str]) -> Case:
    span, keys, sources = draw(st.sampled_from(spans)), draw(st.sampled_from(KEYS)), Sources(draw)
    name = "session_window" if span.lower().startswith("session") else "window"
    by = draw(st.sampled_from(["expression", "number", "alias"]))
    bounds = draw(
        st.sampled_from(
            [
                [f"{span} as w"],
                [f"{span}.start as begun", f"{span}.end"],
                [f"{name}.start", f"{name}.END as ended"],
                [f"{name}"],
            ]
        )
    )
    aliased = f"{span} as w" in bounds
    items = [f"{key} as k{n}" for n, key in enumerate(keys)] + bounds
    for n, text in enumerate(draw(st.lists(st.sampled_from(AGGREGATES), max_size=4))):
        items.append(f"{text}{draw(st.sampled_from([' as', '']))} a{n}")
    if by == "expression" or not aliased:
        group = [*keys, span]
    elif by == "number":
        group = [str(n + 1) for n in range(len(keys) + 1)]
    else:
        group = [*(f"k{n}" for n in range(len(keys))), "w"]
    for n, text in enumerate(
        draw(st.lists(st.sampled_from([*COMPUTED, f"{span}.end - interval 90 seconds"]), max_size=2))
    ):
        items.append(f"{text} as c{n}")
    having = draw(st.sampled_from(HAVING))
    items += ["max(happened_at) + interval 1 second as last"] if "last" in having else []
    order = draw(st.permutations(range(len(group))))
    query = f"select {', '.join(items)}\nfrom {sources.source()} e{draw(conditions())} group by {', '.join(group[n] for n in order)}{having}"
    if bounds in (["window"], [f"{span} as w"]) and name == "window" and draw(st.booleans()):
        of = "w" if aliased else name
        query = f"select *, {of}.end as ended, window_time({of}) from ({query})"
    query = f"{sources.before(query)}\n-- watermark happened_at 1 day\n"
    return Case(query, draw(st.integers(0, SEEDS - 1)), draw(st.integers(1, 3)))


def conditions() -> st.SearchStrategy[str]:
    chosen = st.lists(st.sampled_from(CONDITIONS), max_size=2, unique=True)
    return chosen.map(lambda texts: f" where {' and '.join(f'({text})' for text in texts)}" if texts else "")


COLUMNS = [
    "*",
    "tenant, user_id, type",
    "happened_at as at, price",
    "event_id, price * quantity as worth, tenant as who, 'x' || tenant as x",
    "type as Deleted, user_id",
    "rn, coalesce(type, '-') as kind, happened_at, event_id",
]


@st.composite
def latest(draw: st.DrawFn) -> Case:
    keys = draw(st.sampled_from([keys for keys in KEYS if keys]))
    rank = f"row_number() over (partition by {', '.join(keys)} order by e.happened_at desc, event_id desc nulls last) as rn"
    inner, sources = draw(st.sampled_from(["*", "e.*"])), Sources(draw)
    rows = f"select {inner}, {rank} from {sources.source()} as e{draw(conditions())}"
    outer = draw(
        st.sampled_from(
            ["rn = 1", "r.rn <= 1", "rn < 2 and (price > 4 or type = 'buy')", "tenant <> 'acme' and rn = 1"]
        )
    )
    columns = draw(st.sampled_from(COLUMNS))
    if draw(st.booleans()):
        query = sources.before(f"select {columns} from r where {outer}", f"r as ({rows})")
    else:
        query = sources.before(f"select {columns} from ({rows}) as r where {outer}")
    return Case(f"{query}\n-- watermark happened_at 1 day", draw(st.integers(0, SEEDS - 1)), draw(st.integers(1, 3)))


RANGES = [
    "b.happened_at between a.happened_at and a.happened_at + interval 20 minutes",
    "b.happened_at >= a.happened_at - interval 5 minutes and b.happened_at < a.happened_at + interval 1 hour",
    "a.happened_at - b.happened_at <= interval 10 minutes and (b.happened_at <= a.happened_at)",
    "b.happened_at > a.happened_at and b.happened_at <= a.happened_at + interval 1 hour",
    "b.happened_at between a.happened_at - interval 2 hours and a.happened_at - interval 10 minutes",
    "b.happened_at = a.happened_at",
    "b.happened_at > a.happened_at - interval 3 minutes and interval 3 minutes >= b.happened_at - a.happened_at",
]
EQUAL = ["a.user_id = b.user_id", "a.tenant = b.tenant and b.user_id = a.user_id", "a.user_id % 2 = b.user_id % 2"]
OF_SIDES = [
    "a.type = 'view'",
    "b.price > 3",
    "a.quantity is not null and b.buys",
    "b.type in ('buy', 'call')",
    "a.price < 9 or a.buys",
]
PAIRED = [
    "a.*, b.event_id as other",
    "a.event_id as one, b.event_id as two, a.happened_at, b.happened_at as later",
    "b.price * b.quantity as worth, a.event_id as id, b.event_id as id_2, coalesce(a.type, '-') as kind",
]


@st.composite
def pairs(draw: st.DrawFn) -> Case:
    type_ = draw(st.sampled_from(["", "inner ", "left ", "right outer ", "full outer "]))
    inner = type_ in ("", "inner ")
    # The fifth range leaves out equal times.
    asked = [draw(st.sampled_from(EQUAL)), draw(st.sampled_from(RANGES if inner else [*RANGES[:3], *RANGES[5:]]))]
    own = draw(st.lists(st.sampled_from(OF_SIDES), max_size=2, unique=True))
    if not inner:
        # ON chooses rows of the side that may be missing, WHERE those of the other one.
        kept, missing = {"left ": ("a.", "b."), "right outer ": ("b.", "a.")}.get(type_, ("?", "?"))
        asked += [f"({text})" for text in own if missing in text and kept not in text]
        own = [text for text in own if kept in text and missing not in text]
    where = f" where {' and '.join(f'({text})' for text in own)}" if own else ""
    sources = Sources(draw)
    join = f"{sources.source()} a {type_}join {sources.source()} b"
    query = (
        f"select {draw(st.sampled_from(PAIRED if inner else PAIRED[:2]))} from {join} on {' and '.join(asked)}{where}"
    )
    return Case(
        f"{sources.before(query)}\n-- watermark a.happened_at 1 day",
        draw(st.integers(0, SEEDS - 1)),
        draw(st.integers(1, 3)),
        samples=2,
    )


CASES = st.one_of(grouped(SESSIONS), grouped(WINDOWS), latest(), pairs())


@cache
def rows_of(seed: int) -> list[Row]:
    return events(seed)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[dict[int, DataFrame]]:
    found = {}
    for seed in range(SEEDS):
        found[seed] = spark.createDataFrame(table_of(rows_of(seed))).coalesce(1).cache()
        found[seed].count()
    yield found
    spark.catalog.dropTempView("events")
    for table in found.values():
        table.unpersist()


def of_spark(spark: SparkSession, tables: dict[int, DataFrame], case: Case) -> pa.Table:
    tables[case.seed].createOrReplaceTempView("events")
    return spark.sql(case.query.replace("lake.events", "events")).toArrow()


def of_pipeline(case: Case) -> pa.Table | None:
    made = made_of(case.query, *[sample_of(case.seed)] * case.samples)
    rows = list(rows_of(case.seed))
    random.Random(case.seed).shuffle(rows)
    names = ["events"] if case.samples == 1 else ["left", "right"]
    return selected(made, *(dict.fromkeys(names, rows[n :: case.batches]) for n in range(case.batches)))


def agree(spark: SparkSession, tables: dict[int, DataFrame], case: Case) -> None:
    mine, theirs = of_pipeline(case), of_spark(spark, tables, case)
    if mine is None:
        assert theirs.num_rows == 0
        return
    assert mine.column_names == theirs.column_names
    assert plain(mine) == plain(theirs)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(case=CASES)
def test_a_pipeline_agrees_with_spark(spark: SparkSession, tables: dict[int, DataFrame], case: Case) -> None:
    agree(spark, tables, case)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(case=CASES)
def test_200_pipelines_agree_with_spark(spark: SparkSession, tables: dict[int, DataFrame], case: Case) -> None:
    agree(spark, tables, case)
