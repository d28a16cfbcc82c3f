"""An event for each element (rule 463): the events, reasons and texts are those of rows that were flattened by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.column_names import ELEMENT
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding import exploding
from sessionlake.sources.decoding.exploding import Exploding, ExplodingDecoder
from sessionlake.sources.decoding.files import PATH, FileDecoder
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.shape import Shaping
from tests.support import examples

Row = dict[str, Any]
LIST = "cart.items"
TYPES = {
    "user": pa.string(),
    "at": pa.int64(),
    f"{LIST}.sku": pa.string(),
    f"{LIST}.n": pa.int64(),
    ELEMENT: pa.int64(),
}
COLUMNS = EventColumns(
    "user", "at", "s", None, (f"{LIST}.sku", f"{LIST}.n", ELEMENT), TYPES, ordered=True, canonical=(f"{LIST}.n",)
)

elements = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "sku": st.one_of(st.none(), st.text(max_size=2), st.integers(0, 9)),
            "n": st.one_of(st.none(), st.integers(-9, 9), st.sampled_from(["7", "007", "x", 1.5])),
            "more": st.integers(),
        },
    ),
    st.sampled_from(["scalar", 3]),
)
lists = st.one_of(st.none(), st.lists(elements, max_size=4), st.sampled_from(["no list", {"sku": "a"}]))
rows = st.fixed_dictionaries(
    {"user": st.sampled_from(["ann", "bob", None, {"no": "text"}]), "at": st.sampled_from([1, 2, "x", None])},
    optional={"cart": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"items": lists}))},
)


def decoder(columns: EventColumns, form: str, *, outer: bool = False) -> ExplodingDecoder:
    of = Exploding(LIST, outer)
    return ExplodingDecoder(columns, FileDecoder(of.of_rows(columns), form, "/"), of)  # type: ignore[arg-type]


def read(path: Path, columns: EventColumns = COLUMNS, *, outer: bool = False) -> list[Rows]:
    table = pa.table({PATH: [str(path)]})
    return [*decoder(columns, path.suffix[1:], outer=outer).decode_in_order(table, {str(path): 0}, 0)]


def by_hand(given_rows: list[Row], *, outer: bool) -> tuple[list[Row], int]:
    """Return a row for each element, which has the element in place of the list, and the number of rows without elements."""
    found, without = [], 0
    for row in given_rows:
        items = (row.get("cart") or {}).get("items")
        if isinstance(items, list):
            found += [{**row, "cart": {"items": item}, ELEMENT: number} for number, item in enumerate(items)]
        if items == [] or items is None:
            # A row with a wrong type is a dead letter, whether it has elements or not.
            is_wrong = row["user"] == {"no": "text"} or row["at"] == "x"
            found += [{**row, "cart": None}] if outer or is_wrong else []
            without += not (outer or is_wrong)
        elif not isinstance(items, list):
            found.append({**row, "cart": {"items": "wrong"}})
    return found, without


def write_json(path: Path, given_rows: list[Row]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in given_rows))
    return path


def events_of(parts: list[Rows]) -> tuple[list[Row], list[str | None]]:
    table = pa.concat_tables([part.table.select(COLUMNS.needed).cast(COLUMNS.schema) for part in parts])
    reasons = [
        reason
        for part in parts
        for reason in ([None] * part.table.num_rows if part.error is None else part.error.to_pylist())
    ]
    return table.to_pylist(), reasons


@given(given_rows=st.lists(rows, max_size=6), outer=st.booleans(), again=st.sampled_from([1, 60]))
@examples(60)
def test_json(tmp_path_factory: pytest.TempPathFactory, *, given_rows: list[Row], outer: bool, again: int) -> None:
    root, given_rows = tmp_path_factory.mktemp("json"), given_rows * again
    flat, without = by_hand(given_rows, outer=outer)
    found = read(write_json(root / "rows.json", given_rows), outer=outer)
    table = pa.table({PATH: [str(write_json(root / "flat.json", flat))]})
    wanted = [*FileDecoder(COLUMNS, "json", "/").decode(table)]
    assert sum(part.ignored for part in found) == without
    if not found:
        return
    (events, reasons), (told, told_reasons) = events_of(found), events_of(wanted) if wanted else ([], [])
    wrong = f"wrong type: {LIST} = "
    assert [
        None if reason and reason.startswith(wrong) else event for event, reason in zip(events, reasons, strict=True)
    ] == [
        None if reason and reason.startswith(f"wrong type: {LIST}") and event[ELEMENT] is None else event
        for event, reason in zip(told, told_reasons, strict=True)
    ]
    assert [reason is None for reason in reasons] == [reason is None for reason in told_reasons]
    for part in found:
        _texts_read_again_are_their_events(root, part, outer=outer)


def _texts_read_again_are_their_events(root: Path, part: Rows, *, outer: bool) -> None:
    """Each event's text, as a dead letter has it, is its event alone."""
    texts = part.raw(np.arange(part.table.num_rows)).to_pylist()
    path = root / "again.json"
    path.write_text("".join(f"{text}\n" for text in texts))
    of = Exploding(LIST, outer)
    source = FileDecoder(of.of_rows(COLUMNS, numbered=True), "json", "/")
    again = [*ExplodingDecoder(COLUMNS, source, of, numbered=True).decode(pa.table({PATH: [str(path)]}))]
    assert events_of(again or [part]) == events_of([part])


ARROW = pa.schema(
    [
        ("user", pa.string()),
        ("at", pa.int32()),
        (
            "cart",
            pa.struct([("items", pa.list_(pa.struct([("more", pa.int8()), ("n", pa.int16()), ("sku", pa.string())])))]),
        ),
    ]
)
good = st.fixed_dictionaries(
    {"user": st.sampled_from(["ann", "bob"]), "at": st.integers(1, 9)},
    optional={
        "cart": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "items": st.one_of(
                        st.none(),
                        st.lists(
                            st.one_of(
                                st.none(),
                                st.fixed_dictionaries(
                                    {}, optional={"sku": st.text(max_size=2), "n": st.integers(-9, 9)}
                                ),
                            ),
                            max_size=4,
                        ),
                    )
                },
            ),
        )
    },
)


@given(given_rows=st.lists(good, min_size=1, max_size=8), outer=st.booleans())
@examples(40)
def test_parquet(tmp_path_factory: pytest.TempPathFactory, *, given_rows: list[Row], outer: bool) -> None:
    root = tmp_path_factory.mktemp("parquet")
    pq.write_table(pa.Table.from_pylist(given_rows, ARROW), root / "rows.parquet")
    found, wanted = (
        read(path, outer=outer) for path in (root / "rows.parquet", write_json(root / "rows.json", given_rows))
    )
    assert events_of(found) == events_of(wanted)
    assert [part.ignored for part in found] == [part.ignored for part in wanted]
    for part in found:
        _texts_read_again_are_their_events(root, part, outer=outer)


def test_what_where_reads_of_no_list_is_wrong_and_not_null(tmp_path: Path) -> None:
    given_rows = [{"user": "ann", "at": 1, "cart": {"items": items}} for items in ({"n": 1}, [{"n": 1}, {"n": "x"}], 7)]
    given_rows.append({"user": "ann", "at": "x", "cart": {"items": "y"}})
    asking = replace(COLUMNS, asked=(f"{LIST}.n",))
    shape = Shaping("event", (), f"{LIST}.n > 0", (), (*COLUMNS.inputs,)).shape(TYPES)
    (rows,) = read(write_json(tmp_path / "rows.json", given_rows), asking)
    kept, filtered = shape.filtered(rows)
    assert filtered == 0
    assert kept.error is not None
    assert kept.error.to_pylist() == [
        'wrong type: cart.items.n = none, because cart.items = {"n": 1} is no list',
        None,
        "wrong type: cart.items.n = 'x' is not a long",
        "wrong type: cart.items.n = none, because cart.items = 7 is no list",
        "wrong type: cart.items.n = none, because cart.items = 'y' is no list",
    ]


def test_no_more_elements_than_the_limit(tmp_path: Path) -> None:
    longest, longer = ([{"n": 1}] * count for count in (exploding.MOST_ELEMENTS, exploding.MOST_ELEMENTS + 1))
    given_rows = [{"user": "ann", "at": 1, "cart": {"items": items}} for items in (longer, longest, [{"n": 2}])]
    found = read(write_json(tmp_path / "rows.json", given_rows))
    events, reasons = events_of(found)
    assert len(events) == exploding.MOST_ELEMENTS + 2
    assert reasons[0] == "too many elements: cart.items has 100,001, and 100,000 at most are read"
    assert {*reasons[1:]} == {None}
    assert events[-1][f"{LIST}.n"] == 2


def test_parts_are_bounded_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploding, "MAX_ROWS", 7)
    given_rows = [
        {"user": "ann", "at": number, "cart": {"items": [{"n": n} for n in range(number % 5)]}} for number in range(40)
    ]
    found = read(write_json(tmp_path / "rows.json", given_rows))
    assert max(part.table.num_rows for part in found) <= 7
    orders = [part.origin.order for part in found if part.origin is not None]
    assert orders == sorted({*orders})
    assert len(orders) == len(found)
    events, _ = events_of(found)
    assert [event["at"] for event in events] == [row["at"] for row in given_rows for _ in row["cart"]["items"]]
    assert sum(part.ignored for part in found) == 8


def test_a_text_that_is_cut_has_the_columns_that_were_read(tmp_path: Path) -> None:
    row = {
        "user": "ann",
        "at": 1,
        "note": "x" * 70_000,
        "cart": {"items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]},
    }
    (part,) = read(write_json(tmp_path / "rows.json", [row]))
    assert part.raw(np.array([1])).to_pylist() == [
        '{"user":"ann","at":1,"cart":{"items":[{"sku":"b","n":2}]},"_element":1}'
    ]
    assert part.source(np.array([1])).to_pylist() == [f"{tmp_path}/rows.json:1[1]"]
