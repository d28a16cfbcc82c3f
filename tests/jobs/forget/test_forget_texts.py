"""A key is found in whatever way a text writes it, and not in a part of another one."""

import html
import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.jobs.forget.documents import documents_dir, erase_documents, find_documents
from sessionlake.jobs.forget.keys import Keys, matching
from sessionlake.jobs.forget.lake import Holder
from sessionlake.jobs.forget.texts import in_document, word, written
from sessionlake.warehouse import schemas
from tests.support import make_config

KEYS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
CONDITION = Holder(schemas.DEAD_LETTERS, "raw", "value").condition


@st.composite
def escaped(draw: st.DrawFn, key: str) -> str:
    """Write each character as JSON may: as it is, by its short escape, or by its code units."""
    out = []
    for character in key:
        units = character.encode("utf-16-be").hex()
        codes = "".join(
            f"\\u{draw(st.sampled_from([str.upper, str.lower]))(units[i : i + 4])}" for i in range(0, len(units), 4)
        )
        short = {"/": "\\/"}.get(character, json.dumps(character, ensure_ascii=False)[1:-1])
        out.append(draw(st.sampled_from([codes, short])))
    return "".join(out)


@given(st.data(), KEYS)
def test_every_way_in_which_json_writes_a_key_is_found(data: st.DataObject, key: str) -> None:
    text = data.draw(escaped(key))
    assert json.loads(f'"{text}"') == key
    assert re.fullmatch(written(key), text)
    assert re.fullmatch(written(key), key)


@given(KEYS)
def test_documents_write_a_key_as_json_or_html(key: str) -> None:
    for text in (json.dumps({"value": key}), json.dumps([key], ensure_ascii=False), f"<td>{html.escape(key)}</td>"):
        assert re.search(in_document(key), text), text


def test_a_part_of_a_word_is_no_key() -> None:
    assert not re.search(word("anna"), "joanna anna.b anna@example.org")
    assert re.search(word("anna"), "{user: anna, 7}")
    # A short key is a number or a word of the document's own, unless it stands alone.
    assert not re.search(in_document("7"), '{"count": 7, "text": "7 of 9"}')
    assert re.search(in_document("7"), "<td>7</td>")


def test_broken_rows_are_found_however_they_write_the_key(spark: SparkSession) -> None:
    gone, other = Keys.of(["shop/42", "josé", "anna", "b"]), ["shop/4", "jos", "ann", "e"]
    found = [
        r'{"key": "shop\/42", "n": 1} broken',
        r'{"key":"jos\u00E9"} broken',
        r'{"key": "\u0061nna" broken',
        r'{"\u006bey": "\u0061nna"} broken',
        "{'key': 'anna', ",
        "{user: anna; broken",
        "anna",
    ]
    kept = [
        r'{"key": "shop\/421"} broken',
        '{"key": "joanna", "friend": "anna"} broken',
        '{"key": "", "note": "anna"} broken',
        "{user: joanna; bö",
    ]
    rows = spark.createDataFrame([(None, raw) for raw in found + kept], "key string, raw string")

    def held(keys: Keys) -> list[str]:
        hits = matching(rows.alias("t"), keys.frame(spark, [["key"]]), F.expr(CONDITION))
        return [row.raw for row in hits.collect()]

    assert sorted(held(gone)) == sorted(found)
    assert held(Keys.of(other)) == []


def test_documents_with_a_key_go_whole(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    folder = documents_dir(config, None)
    site = folder / "gx" / "uncommitted" / "data_docs" / "local_site"
    site.mkdir(parents=True)
    (site / "index.html").write_text("<li>anna@example.org &amp; co</li>")
    (site / "other.html").write_text("<li>joanna@example.org</li>")
    (folder / "gx" / "result.json").write_text(json.dumps({"partial_unexpected_list": ["anna@example.org", "7"]}))
    keys = Keys.of(["anna@example.org"])
    assert erase_documents(folder, keys) == 2
    assert find_documents(folder, keys) == []
    assert [file.name for file in folder.rglob("*.*")] == ["other.html"]
    assert documents_dir(config, site) == site
