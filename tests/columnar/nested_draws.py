"""SQL over lists, structs and maps, listed and drawn, and rows to compute it on: nulls, twins and empty lists at all depths."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

NESTED_TYPES = {
    "xs": pa.list_(pa.int64()),
    "ys": pa.list_(pa.float64()),
    "ss": pa.list_(pa.string()),
    "bs": pa.list_(pa.bool_()),
    "ts": pa.list_(pa.timestamp("us", "UTC")),
    "ds": pa.list_(pa.date32()),
    "ns": pa.list_(pa.decimal128(10, 2)),
    "xss": pa.list_(pa.list_(pa.int64())),
    "mp": pa.map_(pa.string(), pa.float64()),
    "ms": pa.map_(pa.string(), pa.list_(pa.string())),
    "items": pa.list_(
        pa.struct(
            [
                ("sku", pa.string()),
                ("n", pa.int64()),
                ("price", pa.float64()),
                ("at", pa.timestamp("us", "UTC")),
                ("tags", pa.list_(pa.string())),
                ("props", pa.map_(pa.string(), pa.int64())),
                ("of", pa.struct([("name", pa.string()), ("a b.c", pa.int64())])),
            ]
        )
    ),
}


def nested_columns(rows: int, random_: random.Random) -> dict[str, pa.Array]:
    some = random_.choice

    def or_null(make: Callable[[], Any]) -> Any:
        return None if random_.random() < 0.15 else make()

    def many(make: Callable[[], Any]) -> Any:
        return or_null(lambda: [or_null(make) for _ in range(some([0, 0, 1, 2, 3, 4]))])

    def pairs(make: Callable[[], Any]) -> Any:
        keys = random_.sample(["a", "b", "", "é", "sku"], some([0, 1, 2, 4]))
        return or_null(lambda: [(key, or_null(make)) for key in keys])

    def whole() -> int:
        return some([-2, 0, 1, 1, 2, 3, 7])

    def real() -> float:
        return some([0.0, 0.5, 1.0, 1.0, -3.25, float("nan"), float("inf")])

    def text() -> str:
        return some(["a", "b", "", "tv", "é", "a,b", "10"])

    def item() -> dict[str, Any]:
        made: dict[str, Callable[[], Any]] = {"sku": text, "n": whole, "price": real, "at": lambda: 10**15 + whole()}
        part = {name: or_null(make) for name, make in made.items()}
        inner = or_null(lambda: {"name": or_null(text), "a b.c": or_null(whole)})
        return {**part, "tags": many(text), "props": pairs(whole), "of": inner}

    makes: dict[str, Callable[[], Any]] = {
        "xs": lambda: many(whole),
        "ys": lambda: many(real),
        "ss": lambda: many(text),
        "bs": lambda: many(lambda: some([True, False])),
        "ts": lambda: many(lambda: 10**15 + whole() * 3_600_000_000),
        "ds": lambda: many(lambda: 18_000 + whole()),
        "ns": lambda: many(lambda: some([0, 125, 125, -250])),
        "xss": lambda: many(lambda: many(whole)),
        "mp": lambda: pairs(real),
        "ms": lambda: pairs(lambda: many(text)),
        "items": lambda: many(item),
    }
    columns = {name: [make() for _ in range(rows)] for name, make in makes.items()}
    cents = pa.array(columns.pop("ns"), pa.list_(pa.int64()))
    arrays = {name: pa.array(values, NESTED_TYPES[name]) for name, values in columns.items()}
    hundredths = pa.compute.divide(cents.values.cast(pa.float64()), 100.0).cast(pa.decimal128(10, 2))
    buffers = cents.buffers()[:2]
    arrays["ns"] = pa.Array.from_buffers(NESTED_TYPES["ns"], rows, buffers, -1, 0, [hundredths])
    return arrays


_PARTS = {
    "bigint": [
        "xs[0]",
        "xs[2]",
        "xs[i]",
        "xs[-1]",
        "xs[null]",
        "xs[length(s)]",
        "xss[1][0]",
        "element_at(xs, 1)",
        "element_at(xs, -2)",
        "element_at(xs, nullif(cast(j as int), 0))",
        "element_at(xss, 1)[1]",
        "items[0].n",
        "items[1].of.`a b.c`",
        "items[0].props['a']",
        "items[0].props.b",
        "(items)[0].n",
        "filter(items, x -> x.sku = 'a')[0].n",
        "element_at(items[0].props, 'a')",
        "size(xs)",
        "size(mp)",
        "size(xss[0])",
        "cardinality(ss)",
        "cardinality(ms)",
        "-size(xs) + 2",
        "array_position(xs, 1)",
        "array_position(xs, i)",
        "array_position(ss, s)",
        "array_position(ys, 1)",
        "array_min(xs)",
        "array_max(xs)",
        "array_max(transform(items, x -> x.n))",
        "array_max((items).n)",
        "named_struct('a', i, 'b', s).a",
        "named_struct('a b', named_struct('c', xs)).`a b`.c[0]",
        "array(1, i, null)[1]",
        "size(filter(items, x -> x.n > 1 and x.price is not null))",
        "size(split(s, ','))",
        "coalesce(items[5].n, xs[0], 0)",
        "case when size(xs) > 1 then xs[1] when size(xs) = 1 then xs[0] end",
        "size(sort_array(slice(filter(xs, x -> x > 0), 1, 2)))",
        "xs[size(xs) - 1] % 2",
    ],
    "boolean": [
        "array_contains(xs, 1)",
        "array_contains(xs, i)",
        "array_contains(ys, 1)",
        "array_contains(ys, x)",
        "array_contains(ss, 'a')",
        "array_contains(ss, s)",
        "array_contains(bs, b)",
        "array_contains(ts, t)",
        "array_contains(ds, d)",
        "array_contains(ns, 1.25)",
        "array_contains(items[0].tags, 'a')",
        "array_contains(transform(xs, x -> x + 1), 2)",
        "exists(xs, x -> x > 2)",
        "exists(xs, x -> x is null)",
        "exists(bs, x -> x)",
        "exists(bs, x -> not x)",
        "exists(items, x -> array_contains(x.tags, 'a'))",
        "exists(xss, x -> exists(x, y -> y > size(x)))",
        "exists(xs, x -> x = i)",
        "forall(xs, x -> x > 0)",
        "forall(bs, x -> x)",
        "forall(items, x -> x.n > 0 or x.sku like 'a%')",
        "forall(xss, x -> forall(x, y -> y is not null))",
        "map_contains_key(mp, 'a')",
        "map_contains_key(mp, s)",
        "map_contains_key(items[0].props, 'sku')",
        "array_min(bs)",
        "array_max(bs)",
        "bs[0] and bs[1]",
        "mp['a'] > 0.5",
        "mp[s] = 1",
        "items[0].sku in ('a', 'b')",
        "items[0].sku not like 'a%'",
        "items[0].at < t",
        "xs is null",
        "items[0] is not null",
        "items[0].of is null",
        "isnull(mp)",
        "isnotnull(xs)",
        "size(xs) between 1 and 2",
        "xs[0] = xs[1]",
        "exists(ss, v -> v rlike '^[0-9]+$') or array_contains(ss, 'tv')",
    ],
    "double": [
        "ys[0]",
        "mp['a']",
        "mp[ss[0]]",
        "element_at(mp, 'b')",
        "element_at(mp, s)",
        "items[0].price * items[0].n",
        "array_min(ys)",
        "array_min(transform(ys, x -> -x * 0D))",
        "sort_array(transform(ys, x -> -x * 0D))[0]",
        "array_max(ys)",
        "map_values(mp)[0]",
        "filter(items, x -> x.sku = 'tv')[0].price",
        "cast(ns[0] as double)",
        "cast(array_max(ns) as double)",
        "array(1, x)[0]",
        "array(x, y)[i]",
        "element_at(transform(items, x -> x.price / x.n), 1)",
    ],
    "string": [
        "ss[0]",
        "items[0].sku || '-' || items[0].of.name",
        "(items).sku[0]",
        "(items).of.name[1]",
        "ms['a'][0]",
        "ms['a'][1]",
        "map_keys(mp)[0]",
        "array_join(ss, ',')",
        "array_join(ss, ', ', 'none')",
        "array_join(ss, '')",
        "array_join(transform(xs, x -> cast(x as string)), '|')",
        "array_join(map_keys(ms), '-')",
        "array_min(ss)",
        "array_max(ss)",
        "split(s, 'v')[1]",
        "array_join(split(s, '[_%]'), '+')",
        "element_at(split(s, ' '), -1)",
        "filter(ss, x -> x <> '')[0]",
        "coalesce(items[0].tags[0], 'none')",
    ],
    "timestamp": [
        "ts[0]",
        "items[1].at",
        "array_max(ts)",
        "ts[0] + interval 1 hour",
        "transform(ds, x -> cast(x as timestamp))[0]",
    ],
    "date": ["ds[1]", "array_min(ds)", "cast(ts[0] as date)", "element_at(ds, -1)"],
    "array<bigint>": [
        "xs",
        "(items).n",
        "xss[0]",
        "sort_array(xs)",
        "sort_array(xs, true)",
        "sort_array(xs, false)",
        "slice(xs, 1, 2)",
        "slice(xs, 2, 1)",
        "slice(xs, -2, 2)",
        "slice(xs, -1, 5)",
        "slice(xs, 1, 0)",
        "slice(xs, coalesce(nullif(cast(i as int), 0), 1), abs(j))",
        "filter(xs, x -> x > 1)",
        "filter(xs, x -> x is not null)",
        "filter(xs, x -> x > i)",
        "filter(xs, x -> array_contains(ys, x))",
        "transform(xs, x -> x * 2 + i)",
        "transform(xss, x -> size(x))",
        "transform(ss, x -> length(x))",
        "transform(bs, x -> cast(x as bigint))",
        "transform(items, x -> x.props['a'])",
        "array(i, j, null)",
        "array(i)",
        "case when b then xs else array(0) end",
        "coalesce(xs, array(1, 2))",
        "if(b, xs, null)",
        "transform(xs, x -> case when x > 1 then x when x is null then -1 end)",
        "transform(xs, e -> nvl(e, size(xs)))",
    ],
    "array<double>": [
        "ys",
        "map_values(mp)",
        "array(x, i, 1.5D)",
        "transform(xs, x -> x / 2)",
        "filter(ys, x -> isnan(x) or x > y)",
    ],
    "array<string>": [
        "map_keys(mp)",
        "map_keys(ms)",
        "split(s, ',')",
        "split(s, 'a')",
        "split(s, '\\\\s+')",
        "split(s, '[ _]|v')",
        "split(s, '\\\\|')",
        "split(s, ' ')",
        "sort_array(ss)",
        "sort_array(ss, false)",
        "(items).sku",
        "(items).of.name",
        "transform(ss, x -> x || u)",
        "transform(ss, x -> get_json_object(x, '$.a'))",
        "transform(items, x -> coalesce(x.sku, x.of.name))",
        "(ms).a",
    ],
    "array<boolean>": ["bs", "transform(bs, x -> not x)", "sort_array(bs)", "transform(xs, x -> x in (1, 2))"],
    "array<timestamp>": ["ts", "(items).at", "sort_array(ts, false)", "transform(ts, x -> date_trunc('day', x))"],
    "array<date>": ["ds", "transform(ds, x -> date_add(x, 1))", "sort_array(ds)"],
    "array<array<bigint>>": ["xss", "transform(xss, x -> filter(x, y -> y > size(x)))", "array(xs, null, xs)"],
    "map<string, double>": ["mp", "if(b, mp, null)"],
    "map<string, array<string>>": ["ms"],
    "struct<a: bigint, b: array<string>>": [
        "named_struct('a', i, 'b', ss)",
        "transform(xs, x -> named_struct('a', x, 'b', ss))[0]",
    ],
    "struct<name: string, `a b.c`: bigint>": ["items[0].of", "(items).of[1]"],
}


def drawn_nested(seed: int, number: int) -> list[tuple[str, str]]:
    """Return expressions with their types: lambdas within lambdas, and lists of lists' functions."""
    draw = _Draw(random.Random(seed))
    kinds: list[tuple[Callable[[], str], str]] = [
        (lambda: draw.test(2, ["i", "j"]), "boolean"),
        (lambda: draw.wholes(2, ["i", "j"]), "array<bigint>"),
        (lambda: draw.whole(2, ["i", "j"]), "bigint"),
    ]
    return [(make(), kind) for make, kind in (kinds * number)[:number]]


class _Draw:
    """Lists of whole numbers, numbers and tests; `names` are the numbers in scope."""

    def __init__(self, random_: random.Random) -> None:
        self._one = random_.choice
        self._variables = 0

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def wholes(self, depth: int, names: list[str]) -> str:
        one = self._one
        if not depth:
            return one(["xs", "xss[0]", "(items).n", f"array({one(names)}, null, 1)"])
        inner, variable = self.wholes(depth - 1, names), self._variable()
        within = [*names, variable]
        return one(
            [
                lambda: f"filter({inner}, {variable} -> {self.test(depth - 1, within)})",
                lambda: f"transform({inner}, {variable} -> {self.whole(depth - 1, within)})",
                lambda: f"slice({inner}, {one([1, 2, -1, -2])}, {one([0, 1, 2])})",
                lambda: f"sort_array({inner}, {one(['true', 'false'])})",
                lambda: (
                    f"transform(filter(items, {variable} -> {variable}.n > {one(names)}), {variable} -> {variable}.n)"
                ),
                lambda: f"if({self.test(depth - 1, names)}, {inner}, {one(['null', 'xs'])})",
            ]
        )()

    def whole(self, depth: int, names: list[str]) -> str:
        one = self._one
        if not depth:
            return one([*names, "2", "-1", "xs[1]", "size(ss)"])
        inner = self.wholes(depth - 1, names)
        return one(
            [
                lambda: f"{inner}[{one(['0', '1', *names])}]",
                lambda: f"{one(['size', 'cardinality', 'array_min', 'array_max'])}({inner})",
                lambda: f"array_position({inner}, {one(names)})",
                lambda: f"element_at({inner}, {one([1, -1, 3])})",
                lambda: f"coalesce({self.whole(depth - 1, names)}, {one(names)}) + {one(names)}",
            ]
        )()

    def test(self, depth: int, names: list[str]) -> str:
        one = self._one
        no = one(["", "not "])
        if not depth:
            return one([f"{one(names)} > 0", f"{one(names)} is {no}null", f"{one(names)} = xs[0]", f"{no}bs[0]"])
        inner, variable = self.wholes(depth - 1, names), self._variable()
        within = [*names, variable]
        return one(
            [
                lambda: f"{no}{one(['exists', 'forall'])}({inner}, {variable} -> {self.test(depth - 1, within)})",
                lambda: f"{no}array_contains({inner}, {self.whole(depth - 1, names)})",
                lambda: f"({inner} is {no}null) {one(['and', 'or'])} {no}({self.test(depth - 1, names)})",
                lambda: f"{no}({self.whole(depth - 1, names)} {one(['=', '<', '<=>'])} {one(names)})",
            ]
        )()


NESTED = [
    *((text, result) for result, texts in _PARTS.items() for text in texts),
    *((f"not {text}", "boolean") for text in _PARTS["boolean"] if " or " not in text and " and " not in text),
    *((f"not ({text})", "boolean") for text in _PARTS["boolean"]),
    *drawn_nested(seed=11, number=150),
]
"""Expressions that are compared with Spark, with their types."""
NESTED_NOT_READ = [
    *("xs = xs", "xs < array(1)", "xs in (xs, array(1))", "greatest(xs, xs) is null", "nullif(xs, xs) is null", "mp = mpp", "items[0] = items[1]"),
    *("exists(xs, (x, y) -> x > y)", "exists(xs, i)", "exists(xs, X -> x > 1)", "exists(xs, i -> I > 1)", "exists(xs)", "exists(xs, x -> x)"),
    *("forall(xs)", "forall(xs, (x, y) -> true)", "forall(xs, b)", "size(transform(xs, (x, n) -> x)) > 1", "size(filter(xs, x => true)) = 1"),
    *("size(s) > 1", "size(items[0]) = 1", "size(array()) = 0", "size(array(null)) = 1", "size(array(1.5)) = 1", "size(array(i, s)) = 1"),
    *("named_struct(s, 1) is null", "named_struct('a', 1, 'b') is null", "named_struct('a', 1, 'A', 2) is null", "struct(1, 2) is null"),
    *("named_struct(concat('a', 'b'), 1) is null", "map('a', 1) is null", "map_from_arrays(ss, ss) is null", "all(bs, x -> x)"),
    *("size(split(s, 'x*')) = 1", "size(split(s, '')) = 1", "size(split(s, u)) = 1", "size(split(s, 'a|')) = 1", "size(split(s, '(a)')) = 1"),
    *("size(split(s, '^a')) = 1", "size(split(s, 'a{0}')) = 1", "size(split(s, '.')) = 1", "size(split(s, 'a', 2)) = 1", "size(split(s, '\\\\b')) = 1"),
    *("items[0].nothing = 1", "items[0].SKU = 'a'", "items[0].sku.more = 1", "xs[0].a = 1", "xs['a'] = 1", "mp[1] = 1", "xs[0:1] is null", "xs[1.5] = 1"),
    *("array_contains(xs, 'a')", "array_contains(xs, 1.5D)", "array_position(ns, 1.25) = 1", "array_contains(items, 1)", "array_contains(xss, xs)", "array_contains(s, 'a')"),
    *("array_join(xs, ',') = ''", "array_join(ss, u) = ''", "array_join(ss, ',', u) = ''", "size(sort_array(xs, b)) = 1", "size(sort_array(xss)) = 1"),
    *("size(sort_array(xs, true, false)) = 1", "array_min(items) is null", "size(slice(xs, 1)) = 1", "size(slice(xs, x, 1)) = 1", "element_at(mp, 1) = 1"),
    *("xs.a = 1", "x -> x", "coalesce(b, y -> y)", "items[0].sku(1) = 1", "map_contains_key(xs, 'a')", "size(map_keys(xs)) = 1"),
    *("size(array_sort(xs)) = 1", "size(flatten(xss)) = 1", "aggregate(xs, 0, (x, y) -> x + y) = 1", "array_contains(xs, 1, 2)", "try_element_at(xs, 1) = 1"),
]  # fmt: skip
"""SQL that is refused in one line: Spark refuses it, or has another meaning for it, or it is not listed."""
