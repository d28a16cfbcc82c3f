"""`init --sql` reads a query whole: an option that changes what it means is in the config, or the query is refused (rule 464)."""

import pytest

from sessionlake.config.problems import InvalidConfigError
from tests.propose.query_support import made_of, sample_of
from tests.propose.query_variants import NOT_READ, READ, pairs


@pytest.mark.parametrize("query", READ)
def test_a_query_is_read(query: str) -> None:
    assert made_of(query, *[sample_of(0)] * (1 + query.count(" join "))).text


@pytest.mark.parametrize("query", NOT_READ)
def test_what_is_not_read_is_refused(query: str) -> None:
    with pytest.raises(InvalidConfigError):
        made_of(query, *[sample_of(0)] * (1 + (" join " in query)))


def test_an_argument_that_nobody_reads_is_named_with_its_place() -> None:
    with pytest.raises(InvalidConfigError) as raised:
        made_of(pairs(between="between symmetric"), sample_of(0), sample_of(0))
    (problem,) = raised.value.problems
    assert "has 'symmetric', which a pipeline has not; leave it out" in problem.message
    assert (problem.line, problem.column) == (1, 81)
