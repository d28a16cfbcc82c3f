"""What the parser of this process makes of expressions and queries, as JSON: a program for `test_parser_versions.py`.

Its input are expressions with their types, and queries of `init --sql`. Its output has the translation of each, or null if it is refused.
"""

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from sessionlake.columnar.spark_sql import parse
from sessionlake.errors import ConfigError
from tests.propose.query_support import made_of, sample_of


def translated(text: str, types: dict[str, pa.DataType]) -> str | None:
    try:
        found, _ = parse("x", text).translated(types, {name: name for name in types})
    except ConfigError:
        return None
    return f"{found.type}: {found.sql}"


def made(query: str) -> str | None:
    samples = [sample_of(0)] * (1 + (" join " in query))
    try:
        pipeline = made_of(query, *samples)
    except ConfigError:
        return None
    return re.sub("path = .*", "", f"{pipeline.text}\n{pipeline.select}")


def all_of(expressions: Iterable[str], queries: Iterable[str], types: dict[str, pa.DataType]) -> dict[str, str | None]:
    return {text: translated(text, types) for text in expressions} | {query: made(query) for query in queries}


if __name__ == "__main__":
    from tests.columnar.sql_draws import TYPES

    given: dict[str, Any] = json.load(sys.stdin)
    json.dump(all_of(given["expressions"], given["queries"], TYPES), sys.stdout)
