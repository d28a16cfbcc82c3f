"""`init --sql`: the settings that each part of a query becomes."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionlake.config.durations import parse_duration
from sessionlake.propose.query.ranges import distances_of
from sessionlake.propose.query.words import parsed
from sessionlake.propose.sample import read_sample
from tests.propose.query_support import config_of, events, made_of, plain, sample_of, selected

SAMPLE = 0
HOUR = 3_600_000_000


def sections(query: str, samples: int = 1) -> dict[str, object]:
    """Return the settings of a query's config that are not the defaults."""
    config = config_of(made_of(query, *[sample_of(SAMPLE)] * samples))
    return config.model_dump(exclude_defaults=True)


def test_a_session_window_is_a_session_with_the_querys_names() -> None:
    made = made_of(
        "select tenant, user_id, session_window(happened_at, '30 minutes') as s, count(*) as visits,\n"
        "  sum(price * quantity) filter (where buys) revenue\n"
        "from shop.events as e where type = 'buy' group by tenant, e.user_id, session_window(e.happened_at, '30 minutes')",
        sample_of(SAMPLE),
    )
    config = config_of(made)
    assert config.operator == "session"
    assert (config.section.gap, config.event.key, config.event.time) == (
        "30 minutes",
        ["tenant", "user_id"],
        "happened_at",
    )
    assert (config.event.where, config.event.columns, config.event.id) == ("type = 'buy'", {}, None)
    assert config.aggregates == {"visits": "count(*)", "revenue": "sum(price * quantity) filter (where buys)"}
    assert config.source.types["happened_at"] == "timestamp"
    assert made.select == (
        "select tenant, cast(user_id as bigint) as user_id, {'start': session_start, 'end': session_end + interval 30 minutes} as s, "
        "visits, revenue\nfrom sessions_live"
    )
    bought = [row for row in events(SAMPLE) if row["type"] == "buy"]
    assert f'# The sample "events" has {len(bought)} events that WHERE lets pass (240 rows).' in made.text.splitlines()
    assert f"# They are of {len({(row['tenant'], row['user_id']) for row in bought})} keys, from " in made.text
    assert (
        "# - Two events exactly 30 minutes apart are of one session here, and of two in Spark, whose gap is exclusive."
        in made.text
    )


@pytest.mark.parametrize(
    ("call", "settings"),
    [
        ("window(happened_at, '1 hour')", {"kind": "tumbling", "size": "1 hour"}),
        ("window(happened_at, '1 hour', '1 hour')", {"kind": "tumbling", "size": "1 hour"}),
        (
            "window(happened_at, '90 minutes', '30 MINUTES')",
            {"kind": "hopping", "size": "1 hour 30 minutes", "advance": "30 minutes"},
        ),
        (
            "window(happened_at, '1 day', '1 day', '6 hours')",
            {"kind": "tumbling", "size": "1 day", "offset": "6 hours"},
        ),
        (
            "window(happened_at, '1 hour', '10 minutes', '-3 minutes')",
            {"kind": "hopping", "size": "1 hour", "advance": "10 minutes", "offset": "7 minutes"},
        ),
        ('window(happened_at, "1 week")', {"kind": "tumbling", "size": "7 days"}),
    ],
)
def test_windows(call: str, settings: dict[str, str]) -> None:
    made = made_of(f"select {call}.start, window.end as upto, count(*) from e group by {call}", sample_of(SAMPLE))
    config = config_of(made)
    section = config.section.model_dump()
    assert {name: section.get(name) for name in ("kind", "size", "advance", "offset")} == {
        "advance": None,
        "offset": "0 seconds",
        **settings,
    }
    assert (section["emit"]["early"], section["emit"]["late"], config.event.key) == ("batch", "batch", None)
    assert (
        made.select
        == 'select window_start as "window.start", window_end as upto, count_all as "count(*)"\nfrom windows_live'
    )


def test_a_case_as_a_gap_gives_events_gaps_of_their_own() -> None:
    made = made_of(
        "select session_window.end, count(*) n from e group by user_id, "
        "session_window(happened_at, case when type = 'buy' then '90 minutes' else '5 minutes' end)",
        sample_of(SAMPLE),
    )
    section = config_of(made).section.model_dump()
    assert {name: section[name] for name in ("gap", "gap_by", "max_gap")} == {
        "gap": "5 minutes",
        "gap_by": "case when type = 'buy' then interval 90 minutes else interval 5 minutes end",
        "max_gap": "1 hour 30 minutes",
    }
    assert made.select == 'select open_until as "end", n\nfrom sessions_live'


def test_comments_are_the_watermark_and_the_ids() -> None:
    made = made_of(
        "-- watermark happened_at 2 hours\n-- unique event_id 3 days\n"
        "select user_id, count(*) n from e group by user_id, session_window(happened_at, '10 minutes')",
        sample_of(SAMPLE),
    )
    config = config_of(made)
    assert (config.section.grace, config.event.id, config.event.unique_for) == ("2 hours", "event_id", "3 days")
    assert "the query's watermark" in made.text
    told = "# That is more than 0.1%: `sessionlake init` without the comment proposes a longer one than 2 hours, if it helps."
    assert told in made.text.splitlines()


def test_ids_that_are_remembered_for_longer_make_the_retention_longer() -> None:
    config = config_of(
        made_of(
            "select count(*) n from e group by window(happened_at, '10 minutes') -- unique e.event_id, tenant 90 days",
            sample_of(SAMPLE),
        )
    )
    assert (config.event.id, config.retention_us) == (["event_id", "tenant"], 90 * 24 * HOUR)


@pytest.mark.parametrize(
    "table",
    [
        "stream events WATERMARK happened_at DELAY OF INTERVAL 90 minutes",
        "stream(events) watermark `happened_at` delay of interval '90' minutes as e",
        "events watermark\n happened_at delay of interval 1 hour 30 minutes",
    ],
)
def test_the_clause_of_a_watermark(table: str) -> None:
    query = f"select count(*) as watermark from {table}\nwhere type <> 'delay of interval 1 hour' group by window(happened_at, '1 hour')"
    config = config_of(made_of(query, sample_of(SAMPLE)))
    assert parse_duration(config.section.model_dump()["grace"]) == 90 * 60_000_000
    assert (config.event.where, config.aggregates) == ("type <> 'delay of interval 1 hour'", {"watermark": "count(*)"})


def test_a_comment_in_a_text_is_none() -> None:
    made = made_of(
        "select count(*) n from e where type = '-- watermark nothing 1 hour' group by window(happened_at, '10 minutes')",
        sample_of(SAMPLE),
    )
    assert config_of(made).event.where == "type = '-- watermark nothing 1 hour'"


@pytest.mark.parametrize(
    ("group", "key", "columns"),
    [
        ("user_id", "user_id", {}),
        ("USER_ID, e.tenant", ["user_id", "tenant"], {}),
        ("coalesce(type, '-')", "key_1", {"key_1": "coalesce(type, '-')"}),
        ("user_id % 2, tenant", ["parity", "tenant"], {"parity": "user_id % 2"}),
        ("1", "user", {"user": "user_id + 1"}),
        ("user", "user", {"user": "user_id + 1"}),
    ],
)
def test_keys(group: str, key: str | list[str], columns: dict[str, str]) -> None:
    items = {"user_id % 2, tenant": "user_id % 2 as parity", "1": "user_id + 1 as user", "user": "user_id + 1 as user"}
    query = f"select {items.get(group, 'count(*) as n')} from e group by {group}, window(happened_at, '1 hour')"
    config = config_of(made_of(query, sample_of(SAMPLE)))
    assert (config.event.key, config.event.columns) == (key, columns)


def test_group_by_all_groups_by_everything_but_the_aggregates() -> None:
    config = config_of(
        made_of("select tenant, window(happened_at, '1 hour') w, count(*) n from e group by all", sample_of(SAMPLE))
    )
    assert (config.event.key, config.aggregates) == ("tenant", {"n": "count(*)"})


def test_sessions_without_a_key_have_one_for_all() -> None:
    config = config_of(
        made_of("select count(*) n from e group by session_window(happened_at, '1 minute')", sample_of(SAMPLE))
    )
    assert (config.event.key, config.event.columns) == ("everything", {"everything": "'all'"})


@pytest.mark.parametrize(
    ("time", "event"),
    [
        ("happened_at", ("happened_at", None)),
        ("cast(happened_at as timestamp)", ("happened_at", None)),
        ("to_timestamp(happened_at)", ("happened_at", None)),
        ("happened_at::timestamp", ("happened_at", None)),
        ("happened_at + interval 1 hour", ("happened_at_2", None)),
    ],
)
def test_times(time: str, event: tuple[str, str | None]) -> None:
    config = config_of(made_of(f"select count(*) n from e group by window({time}, '1 hour')", sample_of(SAMPLE)))
    assert (config.event.time, config.event.time_unit) == event


@pytest.mark.parametrize(
    ("aggregate", "text", "name"),
    [
        ("mean(price) as m", "avg(price)", "m"),
        ("std(price)", "stddev(price)", "std_price"),
        ("count(1)", "count(*)", "count_1"),
        ("COUNT(DISTINCT type) AS kinds", "COUNT(DISTINCT type)", "kinds"),
        ("percentile(price, 0.5) p", "quantile(price, 0.5)", "p"),
        ("approx_percentile(price, 0.9) p", "percentile(price, 0.9)", "p"),
        ("sum(e.price) as event_count", "sum(price)", "event_count_2"),
        ("sum(price) as `the sum`", "sum(price)", "the_sum"),
        ("sum(price * -- of one\n quantity) as s", "sum(price * quantity)", "s"),
    ],
)
def test_aggregates(aggregate: str, text: str, name: str) -> None:
    made = made_of(f"select {aggregate} from e group by window(happened_at, '1 hour')", sample_of(SAMPLE))
    assert config_of(made).aggregates == {name: text}


def test_the_latest_row_of_a_key_is_a_table() -> None:
    made = made_of(
        "with r as (select *, row_number() over (partition by user_id order by happened_at desc, event_id desc) as n from e where quantity > 0)\n"
        "select user_id, type, price * quantity as worth, happened_at from r where n = 1 and type <> 'call'",
        sample_of(SAMPLE),
    )
    config = config_of(made)
    assert config.operator == "table"
    section = config.section.model_dump()
    assert (config.event.key, config.event.time, config.event.id) == ("user_id", "happened_at", "event_id")
    assert (config.event.where, config.event.columns) == ("quantity > 0", {"worth": "price * quantity"})
    assert (section["columns"], section["delete_when"]) == (["type", "worth"], "(type <> 'call') is not true")
    assert (
        made.select
        == "select cast(table_key as bigint) as user_id, type, worth, event_time as happened_at\nfrom table_live"
    )


def test_qualify_is_a_table() -> None:
    made = made_of(
        "select tenant, type from e qualify row_number() over (partition by tenant, user_id order by happened_at desc) = 1",
        sample_of(SAMPLE),
    )
    config = config_of(made)
    assert (config.operator, config.event.key, config.section.model_dump()["columns"]) == (
        "table",
        ["tenant", "user_id"],
        ["type"],
    )


JOIN = (
    "select v.event_id as view, b.event_id as buy, b.price * 2 as twice, v.happened_at as seen, b.happened_at\n"
    "from e as v join e as b on v.user_id = b.user_id and b.happened_at between v.happened_at and v.happened_at + interval 1 hour\n"
    "where v.type = 'view' and b.type = 'buy' and b.price > 1\n"
    "-- watermark v.happened_at 5 minutes\n-- watermark b.happened_at 10 minutes"
)


def test_a_join_on_equality_and_a_range_of_times() -> None:
    made = made_of(JOIN, sample_of(SAMPLE), sample_of(SAMPLE))
    section = config_of(made).section.model_dump()
    assert (section["on"], section["kind"], section["grace"], section["retention"]) == (
        ["user_id"],
        "sliding",
        "10 minutes",
        "1 day",
    )
    left, right = section["left"], section["right"]
    assert (left["name"], left["size"], left["columns"], left["event"]["where"]) == (
        "v",
        "1 hour",
        ["event_id"],
        "type = 'view'",
    )
    assert (right["name"], right["size"], right["columns"]) == ("b", "0 seconds", ["event_id", "twice"])
    assert (right["event"]["where"], right["event"]["columns"]) == (
        "type = 'buy' and price > 1",
        {"twice": "price * 2"},
    )
    assert made.select == (
        "select v_event_id as view, b_event_id as buy, b_twice as twice, left_time as seen, right_time as happened_at\nfrom joins_live"
    )


def test_messages_of_a_join_are_kept_for_as_long_as_ids_are_remembered() -> None:
    made = made_of(f"{JOIN}\n-- unique b.event_id 3 days", sample_of(SAMPLE), sample_of(SAMPLE))
    section = config_of(made).section.model_dump()
    assert (section["right"]["event"]["unique_for"], section["retention"]) == ("3 days", "3 days")


def test_pairs_are_those_of_a_plain_loop() -> None:
    made = made_of(JOIN, sample_of(SAMPLE), sample_of(SAMPLE))
    rows = sorted(events(SAMPLE), key=lambda row: row["happened_at"])
    pairs = [
        (left["event_id"], right["event_id"], right["price"] * 2, left["happened_at"], right["happened_at"])
        for left in rows
        for right in rows
        if left["user_id"] == right["user_id"]
        and 0 <= (right["happened_at"] - left["happened_at"]).total_seconds() <= 3600
        and left["type"] == "view"
        and right["type"] == "buy"
        and (right["price"] or 0) > 1
    ]
    found = selected(made, {"left": rows, "right": rows})
    assert found is not None
    assert len(pairs) > 50
    expected = pa.table([pa.array(column) for column in zip(*pairs, strict=True)], [f"c{n}" for n in range(5)])
    assert plain(found) == plain(expected)


@pytest.mark.parametrize(
    ("times", "sizes", "where"),
    [
        (
            "b.happened_at > a.happened_at and b.happened_at < a.happened_at + interval 1 minute",
            ("59 seconds 999 milliseconds 999 microseconds", "0 seconds"),
            "right_time >= left_time + interval 1 microsecond",
        ),
        (
            "b.happened_at <= a.happened_at - interval 1 hour",
            ("0 seconds", "unbounded"),
            "right_time <= left_time - interval 1 hour",
        ),
        ("a.happened_at <= b.happened_at", ("unbounded", "0 seconds"), None),
        ("a.happened_at = b.happened_at", ("0 seconds", "0 seconds"), None),
    ],
)
def test_ranges_of_a_join(times: str, sizes: tuple[str, str], where: str | None) -> None:
    query = f"select a.event_id from e a join e b on a.tenant = b.tenant and {times}"
    made = made_of(query, sample_of(SAMPLE), sample_of(SAMPLE))
    section = config_of(made).section.model_dump()
    assert (section["left"]["size"], section["right"]["size"], section["on"]) == (*sizes, ["tenant"])
    assert section["retention"] == ("30 days" if "unbounded" in sizes else "1 day")
    assert made.select == f"select a_event_id as event_id\nfrom joins_live{'' if where is None else f' where {where}'}"


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("b.t <= a.t + interval 1 hour", [("b", "a", HOUR)]),
        ("b.t < a.t + interval 1 hour", [("b", "a", HOUR - 1)]),
        ("a.t >= b.t - interval 1 hour", [("b", "a", HOUR)]),
        ("b.t - a.t <= interval 60 minutes", [("b", "a", HOUR)]),
        ("interval 1 hour > b.t - a.t", [("b", "a", HOUR - 1)]),
        ("(b.t between a.t - interval 1 hour and (a.t + interval 2 hours))", [("a", "b", HOUR), ("b", "a", 2 * HOUR)]),
        ("b.t + interval 1 hour >= a.t", [("a", "b", HOUR)]),
        ("b.t > a.t", [("a", "b", -1)]),
        ("b.t = a.t", [("b", "a", 0), ("a", "b", 0)]),
        ("b.t <= a.t + interval 1 month", []),
        ("b.t + a.t <= interval 1 hour", []),
    ],
)
def test_ranges_of_times(condition: str, bounds: list[tuple[str, str, int]]) -> None:
    found = distances_of(parsed(condition))
    assert [(one.later.table, one.earlier.table, one.most_us) for one in found] == bounds


def test_the_head_tells_of_rows_that_would_be_dead_letters_and_may_have_any_query(tmp_path: Path) -> None:
    rows = [{"user": n % 3, "at": f"2026-01-01T00:00:{n:02}Z" if n % 20 else None} for n in range(60)]
    (tmp_path / "in.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = made_of(
        "select user, count(*) as n from e where 'a\x07b' <> 'c' group by user, window(at, '1 minute')",
        read_sample(str(tmp_path / "in.json"), 1 << 20),
    )
    assert config_of(made).event.where == "'a\x07b' <> 'c'"
    assert "# 3 rows have no key or no time; they would become dead letters." in made.text.splitlines()


def test_a_star_leaves_out_columns_that_no_table_has(tmp_path: Path) -> None:
    times = [pa.scalar(n * HOUR, pa.timestamp("us", "UTC")) for n in range(9)]
    prices = pa.array([Decimal(1)] * 9, pa.decimal128(38, 2))
    pq.write_table(pa.table({"id": [*"abc"] * 3, "at": times, "price": prices}), tmp_path / "in.parquet")
    sample = read_sample(str(tmp_path / "in.parquet"), 1 << 20)
    query = "select * from (select *, row_number() over (partition by id order by at desc) rn from e) where rn = 1"
    made = made_of(query, sample)
    assert made.select == "select table_key as id, event_time as at, 1 as rn\nfrom table_live"
    assert "# - No plain type, and so left out: price." in made.text.splitlines()
    made = made_of("select a.* from e a join e b on a.id = b.id and a.at = b.at", sample, sample)
    assert made.select == "select a_id as id, left_time as at\nfrom joins_live"


def test_a_time_of_a_join_may_be_called_window() -> None:
    query = (
        "with x as (select *, happened_at as window from e)\n"
        "select a.type from x a join e b on a.tenant = b.tenant and b.happened_at between window and a.window + interval 1 hour"
    )
    left = config_of(made_of(query, sample_of(SAMPLE), sample_of(SAMPLE))).section.model_dump()["left"]
    assert (left["event"]["time"], left["size"]) == ("happened_at", "1 hour")


def test_names_that_mean_something_else_in_a_config_are_computed_under_other_names(tmp_path: Path) -> None:
    """In aggregates `key` and `event_time` are the event's; key columns stand beside the columns of the rows."""
    rows = [
        {
            "key": n % 3,
            "event_time": 1_767_225_600 + n,
            "revision": n % 2,
            "load-ms": n,
            "at": f"2026-01-01T00:00:{n:02}Z",
        }
        for n in range(60)
    ]
    (tmp_path / "in.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = made_of(
        "select key, max(key * 2) as most, max(at) as latest, sum(`load-ms`) filter (where event_time > 1767225610) as late from lake.raw.clicks\n"
        "group by lake.raw.clicks.key, clicks.revision, window(clicks.at, '1 minute')",
        read_sample(str(tmp_path / "in.json"), 1 << 20),
    )
    config = config_of(made)
    assert config.event.key == ["key", "revision_key"]
    assert config.event.columns == {"revision_key": "revision", "key_of_row": "key", "event_time_of_row": "event_time"}
    assert config.aggregates == {
        "most": "max(key_of_row * 2)",
        "latest": "max(at)",
        "late": "sum(`load-ms`) filter (where event_time_of_row > 1767225610)",
    }
    assert made.select == "select cast(key as bigint) as key, most, latest, late\nfrom windows_live"


def test_columns_of_a_table_that_rows_cannot_have_are_computed_under_other_names(tmp_path: Path) -> None:
    rows = [{"id": n % 3, "revision": n, "at": f"2026-01-01T00:00:{n:02}Z", "no word": n} for n in range(60)]
    (tmp_path / "in.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = made_of(
        "select * from (select *, row_number() over (partition by id order by at desc) rn from e) where rn = 1",
        read_sample(str(tmp_path / "in.json"), 1 << 20),
    )
    config = config_of(made)
    assert config.event.columns == {"revision_of_row": "revision"}
    assert config.section.model_dump()["columns"] == ["revision_of_row", "no word"]
    assert made.select == (
        'select cast(table_key as bigint) as id, revision_of_row as revision, event_time as at, "no word", 1 as rn\nfrom table_live'
    )
