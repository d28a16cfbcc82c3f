"""Keys as somebody writes them: a number in any form (docs/rules.md, rule 465)."""

from pathlib import Path

from sessionlake.sources.equal_types import asked_key, asked_prefix
from tests.stream.equality_support import by_key, last


def test_keys_are_asked_for_in_any_form_of_their_numbers(tmp_path: Path) -> None:
    config = by_key(tmp_path)
    new = last(config, {"k": "decimal128(10, 2)"}, by_value=True)
    assert [asked_key(config, new, text) for text in ("1.00", "1", "1e2", "-0.0", "ann")] == [
        "1",
        "1",
        "100",
        "0",
        "ann",
    ]
    assert asked_key(config, last(config, {"k": "decimal128(10, 2)"}), "1.00") == "1.00"
    assert asked_key(config, last(config, {"k": "string"}, by_value=True), "1.00") == "1.00"
    assert asked_key(config, None, "1.00") == "1.00"


def test_a_key_of_several_columns_is_asked_for_column_by_column(tmp_path: Path) -> None:
    config = by_key(tmp_path, ["tenant", "k"])
    new = last(config, {"tenant": "string", "k": "double"}, by_value=True)
    assert asked_key(config, new, '["1.00", "1.00"]') == '["1.00","1"]'
    assert asked_key(config, new, "else") == "else"
    assert asked_prefix(config, new, '["1.00",') == '["1.00",'
    config = by_key(tmp_path, ["k", "tenant"])
    assert asked_prefix(config, new, '["1.50",') == '["1.5",'
    assert asked_prefix(config, new, "1.5") == "1.5"
    config = by_key(tmp_path, ["tenant", "k", "m"])
    new = last(config, {"tenant": "string", "k": "double", "m": "int64"}, by_value=True)
    assert asked_prefix(config, new, '["a\\",b","1.50",') == '["a\\",b","1.5",'
