"""`init --sql`: each part of a query that no pipeline can have is one line, with its place. query_refusals.toml has the lines."""

import tomllib
from pathlib import Path

import pytest

from sessionlake.config.problems import InvalidConfigError
from tests.propose.query_support import made_of, sample_of

CASES = {
    case["name"]: case for case in tomllib.loads(Path(__file__).with_name("query_refusals.toml").read_text())["case"]
}
HOURS = "group by window(happened_at, '1 hour')"


def refused(query: str, samples: int) -> str:
    with pytest.raises(InvalidConfigError) as raised:
        made_of(query, *[sample_of(0)] * samples)
    (problem,) = raised.value.problems
    assert problem.file == "query.sql"
    return f"{problem.line}:{problem.column} {problem.key}: {problem.message}"


@pytest.mark.parametrize("case", CASES)
def test_one_line_names_the_clause_and_its_place(case: str) -> None:
    assert refused(CASES[case]["query"], CASES[case]["samples"]) == CASES[case]["line"]


def test_a_join_needs_two_samples_and_others_one() -> None:
    query = "select a.type from e a join e b on a.tenant = b.tenant and a.happened_at = b.happened_at"
    told = "1:24 join: 'join e b on a.tenant = b.tenant and a.happened_at = b.happened_at' joins two tables; samples: 1; pass that of FROM and that of JOIN, in this order; a table of one row for each key, such as customers, needs no join: leave it out, and add [[lookup]] to the config (docs/lookups.md)"
    assert refused(query, 1) == told
    told = "1:1 sample: there are 2 samples, and the query reads one table; pass one, or join two"
    assert refused(f"select count(*) n from e {HOURS}", 2) == told


def test_all_clauses_are_named_at_once() -> None:
    query = f"select prize, sum(price) over ()\nfrom e where soundex(type) = 'a'\n{HOURS} having 1 limit 1"
    with pytest.raises(InvalidConfigError) as raised:
        made_of(query, sample_of(0))
    keys = [(problem.key, problem.line) for problem in raised.value.problems]
    assert keys == [("limit", 3), ("event.where", 2), ("column", 1), ("select", 1), ("having", 3)]


def test_a_text_that_is_no_sql_has_its_place() -> None:
    assert refused("select count(*\nfrom e", 1).startswith("2:4 sql: is no query of Spark's SQL (")
