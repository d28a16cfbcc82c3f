"""Dead letters of exploded rows (rule 463): each has one element, which is redeemed alone."""

import pyarrow as pa

from sessionlake.aggregates import build_aggregates
from sessionlake.jobs.redeem.rows import judge_letters
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.exploding import Exploding, ExplodingDecoder
from sessionlake.sources.decoding.files import FileDecoder
from sessionlake.stream.capabilities import Redeeming
from sessionlake.stream.ingest import EventSpec

TYPES = {"at": pa.int64(), "items.sku": pa.string(), "items.n": pa.int64(), "id": pa.string(), "_element": pa.int64()}
COLUMNS = EventColumns("items.sku", "at", "us", "id", ("items.n",), TYPES, further_ids=("_element",))


def test_each_letter_is_one_event() -> None:
    texts = {
        '{"_element":3,"id":"o","at":100,"items":[{"sku":"a","n":1}]}': "redeemed",
        '{"_element":4,"id":"o","at":100,"items":[{"sku":"a","n":"x"}]}': "refused",
        '{"_element":5,"id":"o","at":10,"items":[{"sku":"a","n":1}]}': "beyond_retention",
        '{"id":"o","at":100,"items":[{"sku":"a","n":1},{"sku":"b","n":2}]}': "unreadable",
        '{"id":"o","at":100,"items":[]}': "unreadable",
        '{"id":"o","at":100,"items":"x"}': "refused",
        "{broken": "refused",
    }
    of = Exploding("items")
    decoder = ExplodingDecoder(COLUMNS, FileDecoder(of.of_rows(COLUMNS), "json", "/"), of)
    spec = Redeeming(build_aggregates({"n": "sum(items.n)"}, TYPES, with_id=True), EventSpec(decoder))
    letters = pa.RecordBatch.from_pydict(
        {"letter": [str(at) for at in range(len(texts))], "batch_id": [7] * len(texts), "raw": [*texts]}
    )
    judged = {row["letter"]: row for row in judge_letters(spec, letters, 50, 500, {}).to_pylist()}
    assert [judged[str(at)]["outcome"] for at in range(len(texts))] == [*texts.values()]
    assert (judged["0"]["key"], judged["0"]["event_id"], judged["0"]["event"]) == ("a", '["o","3"]', {"items.n": 1})
