"""From a query to a config: the query's operator, and errors with their places in the query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlglot.errors import SqlglotError

from sessionlake.config.positions import Place
from sessionlake.config.problems import InvalidConfigError, Problem, problems_of
from sessionlake.errors import ConfigError
from sessionlake.propose.query.grouped import chosen_of, groups_of
from sessionlake.propose.query.joined import pairs_of
from sessionlake.propose.query.latest import latest_of
from sessionlake.propose.query.live import select_over
from sessionlake.propose.query.notes import Made
from sessionlake.propose.query.ranks import is_ranked
from sessionlake.propose.query.subqueries import select_of, subquery_of, whole_of
from sessionlake.propose.query.toml import query_toml
from sessionlake.propose.query.words import Query, QueryError, QueryErrors
from sessionlake.propose.sample import Sample


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a query."""

    text: str
    """The config."""
    select: str
    """The SELECT over the live view, in DuckDB's SQL, whose columns are the query's."""
    places: dict[str, Place]
    """The places in the query of the texts of the config's keys."""
    query: Query

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the config's problems with their places in the query, as far as their text stems from it."""
        return [_located(self.query, self.places, problem) for problem in problems]


def pipeline_of(
    text: str, file: str, samples: Sequence[Sample], *, name: str, directory: Path, output: str
) -> Pipeline:
    """Return the pipeline of a query over samples, in the order of FROM and JOIN.

    `file` is the query's name in errors, `directory` the folder of the config's file, and `output` its name in comments.
    InvalidConfigError has each part of the query, with its place, that no pipeline can have.
    """
    query = Query(text, file)
    try:
        made = _made(query, samples)
        query.check_known()
    except QueryErrors as found:
        raise InvalidConfigError([query.problem(error) for error in found.errors]) from found
    except QueryError as error:
        raise InvalidConfigError([query.problem(error)]) from error
    except SqlglotError as error:  # a part that is no expression, though the whole was a query
        raise query.not_sql(error) from error
    places = {key: place for one in made.inputs for key, place in one.fields.places.items()}
    try:
        toml = query_toml(query, made, name=name, directory=directory, output=output)
    except ConfigError as error:  # SQL that does not fit the sample
        raise InvalidConfigError([_located(query, places, problem) for problem in problems_of(error)]) from error
    return Pipeline(toml, "\n".join(select_over(made.view, made.shown, made.conditions)), places, query)


def _located(query: Query, places: Mapping[str, Place], problem: Problem) -> Problem:
    place = places.get(problem.key or "")
    if place is None:
        return problem
    return replace(problem, file=query.file, line=place.line, column=place.column)


def _made(query: Query, samples: Sequence[Sample]) -> Made:
    block = whole_of(query, select_of(query, query.tokens))
    inner = subquery_of(query, block.source, block.named)
    if block.joins:
        return pairs_of(query, block, samples)
    if len(samples) > 1:
        reason = f"there are {len(samples)} samples, and the query reads one table; pass one, or join two"
        raise QueryError("sample", reason, query.place(block.start))
    if inner is not None and is_ranked(query, [inner]):
        return latest_of(query, block, inner, samples[0])
    if is_ranked(query, [block]):
        return latest_of(query, block, None, samples[0])
    if inner is not None and inner.group and not inner.joins:
        return chosen_of(query, block, groups_of(query, inner, samples[0]))
    return groups_of(query, block, samples[0])
