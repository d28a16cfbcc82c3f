"""`init --sql`: subqueries that choose rows and compute columns become settings of the events, and expressions of aggregates the SELECT."""

import json
from pathlib import Path

import pytest

from sessionlake.propose.sample import read_sample
from tests.propose.query_support import config_of, events, made_of, sample_of, selected

HOURS = "group by window(happened_at, '1 hour')"


def shaped(query: str) -> tuple[str | None, dict[str, str], dict[str, str]]:
    """Return the condition, the computed columns and the aggregates of a query's config."""
    config = config_of(made_of(query, sample_of(0)))
    return config.event.where, config.event.columns, config.aggregates


@pytest.mark.parametrize(
    ("source", "aggregate", "expected"),
    [
        (
            "(select *, price * quantity as amount from e where type = 'buy')",
            "sum(amount)",
            ("type = 'buy'", {"amount": "price * quantity"}, "sum(amount)"),
        ),
        (
            "(select price as cost, happened_at from (select * from e where price > 1 or buys) x where x.quantity > 0) y",
            "sum(y.cost)",
            ("(price > 1 or buys) and quantity > 0", {}, "sum(price)"),
        ),
        # A column that nothing needs is not computed.
        (
            "(select *, price * 2 as twice, price * 3 as thrice from e)",
            "sum(thrice)",
            (None, {"thrice": "price * 3"}, "sum(thrice)"),
        ),
        # An alias can be named by the items behind it; one that hides a column has another name in the config.
        (
            "(select happened_at, price * 2 as a, a + 1 as price from e where price > 5)",
            "sum(price)",
            ("price > 5", {"a": "price * 2", "price_2": "a + 1"}, "sum(price_2)"),
        ),
        (
            "(select quantity as price, price as quantity, happened_at from e)",
            "sum(price - quantity)",
            (None, {}, "sum(quantity - price)"),
        ),
        (
            "(select quantity as price, price + 1 as more, happened_at from e)",
            "sum(more)",
            (None, {"more": "price + 1"}, "sum(more)"),
        ),
        # A text and the name of a type are no columns.
        (
            "(select tenant as type, happened_at as date from e)",
            "count_if(type = 'type' and cast(date as date) > date '2026-01-01')",
            (None, {}, "count_if(tenant = 'type' and cast(happened_at as date) > date '2026-01-01')"),
        ),
        ("(select e.* except (price, type) from lake.e)", "sum(quantity)", (None, {}, "sum(quantity)")),
    ],
)
def test_a_subquery_in_from(source: str, aggregate: str, expected: tuple[str | None, dict[str, str], str]) -> None:
    where, columns, text = expected
    span = "group by window(date, '1 hour')" if "as date" in source else HOURS
    assert shaped(f"select {aggregate} as a from {source} {span}") == (where, columns, {"a": text})


def test_subqueries_of_with_see_those_before_them() -> None:
    query = (
        "with buys as (select *, cast(happened_at as timestamp) as t from shop.events where type = 'buy'),\n"
        "  dear as (select b.tenant as shop, t, price * quantity as amount from buys as b where b.price > 2),\n"
        "  sums as (select shop, session_window.start, sum(amount) as revenue from dear group by shop, session_window(t, '30 minutes'))\n"
        "select * from sums -- watermark t 1 hour"
    )
    made = made_of(query, sample_of(0))
    config = config_of(made)
    assert (config.event.key, config.event.time, config.section.grace) == ("tenant", "happened_at", "1 hour")
    assert (config.event.where, config.event.columns) == (
        "type = 'buy' and price > 2",
        {"amount": "price * quantity"},
    )
    assert made.select == "select session_key as shop, session_start as start, revenue\nfrom sessions_live"
    places = {key: (place.line, place.column) for key, place in made.places.items()}
    assert (places["event.columns.amount"], places["event.where"]) == ((2, 40), (1, 84))


def test_a_subquery_of_with_may_have_the_name_of_the_table_that_it_reads() -> None:
    query = f"with e as (select * from e where buys), e as (select * from e where price > 1) select count(*) as n from e {HOURS}"
    assert shaped(query) == ("buys and price > 1", {}, {"n": "count(*)"})


def test_a_computed_time_of_texts_in_a_subquery_of_a_subquery() -> None:
    query = (
        "select count(*) as n from (select t + interval 1 hour as u from (select happened_at + interval 1 day as t from e))\n"
        "group by window(u, '1 hour') -- watermark u 5 minutes"
    )
    config = config_of(made_of(query, sample_of(0)))
    assert config.event.time == "u"
    assert config.event.columns == {"t": "happened_at + interval 1 day", "u": "t + interval 1 hour"}
    assert config.section.model_dump()["grace"] == "5 minutes"


def test_numbers_that_a_subquery_makes_times_keep_their_unit(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"ms": 1_767_225_600_000 + n, "v": n}) + "\n" for n in range(30))
    (tmp_path / "in.json").write_text(rows)
    query = (
        "with a as (select timestamp_millis(ms) as t, v from e) select sum(v) as s from a group by window(t, '1 hour')"
    )
    config = config_of(made_of(query, read_sample(str(tmp_path / "in.json"), 1 << 20)))
    assert (config.event.time, config.event.time_unit, config.event.columns) == ("ms", "ms", {})


def test_the_latest_row_of_a_subquery() -> None:
    query = (
        "with r as (select type as kind, price * quantity as worth, user_id as u, happened_at as at from e where buys),\n"
        "  n as (select *, row_number() over (partition by u order by at desc) as rn from r)\n"
        "select u, kind, worth from n where rn = 1 and worth > 3"
    )
    made = made_of(query, sample_of(0))
    config = config_of(made)
    section = config.section.model_dump()
    assert (config.event.key, config.event.where, config.event.columns) == (
        "user_id",
        "buys",
        {"worth": "price * quantity"},
    )
    assert (section["columns"], section["delete_when"]) == (["type", "worth"], "(worth > 3) is not true")
    assert made.select == "select cast(table_key as bigint) as u, type as kind, worth\nfrom table_live"


def test_both_sides_of_a_join_may_be_subqueries() -> None:
    query = (
        "with views as (select user_id as u, event_id, happened_at as t, price from e where type = 'view')\n"
        "select views.event_id, other, b.bt, b.* from views\n"
        "join (select user_id % 2 as u2, event_id as other, happened_at + interval 1 minute as bt from e where buys) as b\n"
        "on views.u = b.u2 and b.bt between views.t and views.t + interval 1 hour where views.price > 2"
    )
    made = made_of(query, sample_of(0), sample_of(0))
    section = config_of(made).section.model_dump()
    left, right = section["left"], section["right"]
    assert (section["on"], left["name"], right["name"]) == (["user_id = u2"], "views", "b")
    assert (left["event"]["time"], left["event"]["where"]) == ("happened_at", "type = 'view' and price > 2")
    assert (right["event"]["time"], right["event"]["where"]) == ("bt", "buys")
    assert right["event"]["columns"] == {"u2": "user_id % 2", "bt": "happened_at + interval 1 minute"}
    assert made.select == (
        "select views_event_id as event_id, b_event_id as other, right_time as bt, b_u2 as u2, b_event_id as other, right_time as bt\n"
        "from joins_live"
    )


@pytest.mark.parametrize(
    ("items", "aggregates", "select"),
    [
        (
            "sum(price) / count(*) as mean, count(*) as n",
            {"n": "count(*)", "mean_1": "sum(price)"},
            "try((cast(mean_1 as double) / nullif(cast(n as double), 0))) as mean, n",
        ),
        (
            "max(quantity) - min(quantity) filter (where buys) as `the spread`",
            {"the_spread_1": "max(quantity)", "the_spread_2": "min(quantity) filter (where buys)"},
            'try((cast(the_spread_1 as bigint) - cast(the_spread_2 as bigint))) as "the spread"',
        ),
        (
            "tenant || '-' as shop, hour(window.start) as h, 'all' as kind",
            {},
            "try((window_key || '-')) as shop, try(hour((window_start at time zone 'UTC'))) as h, try('all') as kind",
        ),
        ("sum(price) + 1", {"value_1": "sum(price)"}, None),
        ("sum(price) + 1 as a, sum(quantity) as a_1", {"a_1": "sum(quantity)", "a_2": "sum(price)"}, None),
    ],
)
def test_expressions_of_aggregates_and_keys(items: str, aggregates: dict[str, str], select: str | None) -> None:
    made = made_of(f"select {items} from e {HOURS}, tenant", sample_of(0))
    assert config_of(made).aggregates == aggregates
    if select is not None:
        assert made.select == f"select {select}\nfrom windows_live"


def test_aliases_that_are_words_of_sql_are_quoted() -> None:
    query = (
        f"select tenant as `order`, user_id, count(*) as `end`, sum(price) as `group`, sum(price) / count(*) as `select` from e {HOURS},\n"
        "tenant, user_id having `end` > 1"
    )
    found = selected(made_of(query, sample_of(0)), {"events": events(0)})
    assert found is not None
    assert found.column_names == ["order", "user_id", "end", "group", "select"]
    for total, number, mean in zip(*(found[name].to_pylist() for name in ("group", "end", "select")), strict=True):
        assert mean == (None if total is None else total / number)


def test_having_is_a_condition_on_the_live_view_and_the_config_keeps_all_groups() -> None:
    query = f"select tenant, count(*) as n, sum(price) as revenue from e {HOURS}, tenant"
    made = made_of(f"{query} having n > 3 and max(price) < 18", sample_of(0))
    assert config_of(made).aggregates == {"n": "count(*)", "revenue": "sum(price)", "having_1": "max(price)"}
    assert (
        "# - `windows_live` also has the groups that HAVING leaves out; the SELECT above leaves them out." in made.text
    )
    found, every = (selected(one, {"events": events(0)}) for one in (made, made_of(query, sample_of(0))))
    assert found is not None
    assert every is not None
    assert 0 < found.num_rows < every.num_rows
    assert min(found["n"].to_pylist()) == 4
