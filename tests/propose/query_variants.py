"""Queries of `init --sql` with options: those that are read, and those that are refused."""

_HOURS = "window(happened_at, '1 hour')"
_ORDER = "partition by tenant order by happened_at desc"
_PAIRS = "b.happened_at {between} a.happened_at and a.happened_at + interval 1 hour"


def groups(source: str = "", after: str = "", item: str = "sum(price) s") -> str:
    return f"select tenant, {_HOURS} w, {item} from events {source} group by tenant, {_HOURS} {after}"


def latest(over: str = _ORDER, call: str = "row_number()", condition: str = "rn = 1", items: str = "*") -> str:
    return f"select {items} from (select *, {call} over ({over}) as rn from events) where {condition}"


def qualified(condition: str) -> str:
    return f"select tenant, price from events qualify row_number() over ({_ORDER}) {condition}"


def pairs(join: str = "join", on: str = "a.tenant = b.tenant", between: str = "between") -> str:
    return f"select a.tenant, b.price from events a {join} events b on {on} and {_PAIRS.format(between=between)}"


READ = [
    groups("where type not like 'b%'"),
    groups("where not price between 1 and 3"),
    groups(item="sum(price) filter (where type not like 'b%') s"),
    groups(item="cast(avg(price) as int) s"),
    groups(after="having tenant not like 'a%'"),
    groups(after="having sum(price) not between 1 and 2"),
    latest(),
    latest(f"{_ORDER} nulls last"),
    latest(condition="rn < 2 and type not like 'b%'"),
    latest(items="* except (price)"),
    qualified("= 1"),
    qualified("<= 1"),
    pairs(),
    pairs("left outer join"),
    pairs(between="between a.happened_at - interval 30 minutes and a.happened_at and b.happened_at between"),
]
NOT_READ = [
    *(groups(f"where {condition}") for condition in ("price between symmetric 3 and 1", "type like any (tenant, 'b')")),
    *(groups(f"where {condition}") for condition in ("type ilike tenant", "buys = type not like 'a%'", "exists (select 1)")),
    *(groups(source) for source in ("tablesample (10 percent)", "version as of 3", "e, events f", "fetch first 5 rows only")),
    *(groups(after=after) for after in ("with rollup", "with cube", "qualify s = 1", "window w as (partition by a)")),
    groups(after="having sum(price) between symmetric 9 and 1"),
    groups(item="sum(price) filter (where quantity between symmetric 3 and 1) s"),
    groups(item="max(price) over (partition by tenant) s"),
    *(latest(f"{_ORDER} {more}") for more in ("nulls first", "rows between unbounded preceding and current row")),
    *(latest(over) for over in (f"w {_ORDER}", "distribute by tenant sort by happened_at desc")),
    *(latest(call=f"row_number() {more}") for more in ("filter (where buys)", "ignore nulls")),
    *(latest(condition=f"rn {c}") for c in ("!= 1", ">= 1", "<=> 2", "<> 1", "% 3 = 1", "= 1 or buys", "= 1 is true", "in (1)")),
    *(latest(condition=c) for c in ("not rn = 1", "-rn = 1", "rn = -1", "rn < -2", "rn between symmetric 1 and 0")),
    *(latest(items=items) for items in ("* replace (1 as price)", "* ilike 'p%'", "distinct on (tenant) price", "top 3 price")),
    *(qualified(c) for c in ("!= 1", ">= 1", "<> 1", "% 3 = 1", "+ 1 = 1", "= 1 or price = 1", "> 5 or price = 1", "= 1 = buys")),
    *(pairs(join) for join in ("natural join", "left semi join", "left anti join", "cross join", "asof join", "join lateral")),
    *(pairs(between=words) for words in ("not between", "between symmetric", "not between symmetric")),
    *(pairs(on=on) for on in ("a.tenant <=> b.tenant", "not a.tenant = b.tenant")),
    *(f"with {part} {latest()}" for part in ("recursive events as (select * from e)", "events(a) as (select * from e)")),
]  # fmt: skip
