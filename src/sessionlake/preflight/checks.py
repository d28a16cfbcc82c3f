"""Every check of a pipeline that needs no JVM. Each reports its problems separately."""

from collections.abc import Mapping

from sessionlake.aggregates import AggregateSpec
from sessionlake.aggregates.spec import build_custom
from sessionlake.config.checks import check_remembered
from sessionlake.config.load import Config
from sessionlake.config.problems import Gathered, Problem
from sessionlake.errors import LakeError
from sessionlake.preflight.lookups import lookup_problems
from sessionlake.preflight.needs import OF_STREAM, Needs
from sessionlake.preflight.places import unwritable
from sessionlake.preflight.sources import UnseenError, sources_without_spark
from sessionlake.sources.base import Source
from sessionlake.stream.changes import refusals
from sessionlake.stream.kind import Kind
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.shape import Shaping
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.grace import of_warehouse
from sessionlake.warehouse.lake import Lake


def problems_of_pipeline(
    config: Config, needs: Needs = OF_STREAM, sources: Mapping[str, Source] | None = None
) -> list[Problem]:
    """Return all problems of a pipeline; `sources` are from `sources_without_spark`, if open."""
    gathered = Gathered()
    _check_sql(config, gathered)
    if needs.room:
        gathered.add(*unwritable(config))
    if needs.tables or needs.source:
        _check_data(config, needs, gathered, sources_without_spark(config) if sources is None else sources)
    return gathered.problems


def _check_sql(config: Config, found: Gathered) -> None:
    """Parse aggregates and rules, and import users' classes."""
    for name, text in config.aggregates.items():
        with found.one():
            spec = AggregateSpec.parse(name, text)
            if spec.path is not None:
                build_custom(name, spec.path, config.pipeline.code)
    for side in config.inputs.values():
        with found.one():
            Shaping.of(side.event_at, side.event, (), ()).check()
    if config.expire.where is not None:
        from sessionlake.jobs.expire.rule import frozen  # noqa: PLC0415 (most configs have no rule, and it takes a second)

        with found.one():
            frozen(config.expire.where, 0, setting="expire.where")


def _check_data(config: Config, needs: Needs, found: Gathered, sources: Mapping[str, Source]) -> None:
    """Compare the config with its source and its tables."""
    seen = Gathered()
    if needs.source:
        for source in sources.values():
            with seen.one():
                source.check()
    kind, last = kind_of(config), None
    if needs.tables:
        with seen.one():
            last = last_known_batch(config)
            if last is not None:
                seen.add(*map(Problem.of, refusals(config, last, kind.bound_settings(), drops=needs.drops)))
            # Of a warehouse that only Spark can read the run itself knows.
            if last is not None or "://" not in config.pipeline.warehouse:
                check_remembered(of_warehouse(config, last))
    if needs.source:
        seen.add(*lookup_problems(sources, () if needs.lookups or last is None else last.pins))
    found.add(*seen.problems)
    # Without pinned types of the first batch, the source's types count, which may have changed by now.
    first = needs.source and (not needs.tables or "://" not in config.pipeline.warehouse)
    if not found.problems and (last is not None or first):
        with found.one():
            _made(config, kind, sources, last)


def _made(config: Config, kind: type[Kind], sources: Mapping[str, Source], last: BatchCommit | None) -> None:
    """Make the operator as a run does, which checks columns and expressions."""
    try:
        kind.make(config, sources, Pinned.of(last))
    except UnseenError:
        return


def last_known_batch(config: Config) -> BatchCommit | None:
    """Return the last batch, None if there is none or if only Spark can read it."""
    try:
        return find_last_batch(Lake.of(config))
    except LakeError:
        return None
