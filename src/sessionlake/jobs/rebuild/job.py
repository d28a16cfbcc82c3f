"""Rebuild: a new warehouse from all events, after a change that old rows can't follow."""

import os
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config
from sessionlake.config.paths import expanded, unset_variables
from sessionlake.engine import failpoints
from sessionlake.errors import JobError
from sessionlake.jobs.rebuild.from_archive import rebuild_from_archive
from sessionlake.jobs.rebuild.switch import Switch, plan_switch, switched
from sessionlake.stopping import leaves
from sessionlake.stream.accepted_commands import must_name_origin
from sessionlake.stream.run import OnCommit, RunSummary, run
from sessionlake.warehouse.batches import REBUILDING
from sessionlake.warehouse.tables import Tables


def rebuild(
    spark: SparkSession,
    config_path: str | Path,
    warehouse: str,
    *,
    from_topic: bool = False,
    from_archive: bool = False,
    from_what_is_there: bool = False,
    on_commit: OnCommit | None = None,
) -> tuple[RunSummary, Switch]:
    """Compute the rows of all events anew, into a new warehouse under the present config; return its summary and the switch.

    The old warehouse stays as it is. Corrections of the old warehouse are not repeated. The events are those of the source,
    or with `from_archive` those of the old warehouse's archive; then the stream goes on after the last batch that the
    archive has. `from_what_is_there` takes an archive that lacks events. A rebuild from the archive that was killed is
    started again as it was; one from the source on another path, or after removing its files.

    Raises JobError if the new warehouse has tables already. Raises it also if the events come from a topic, which may
    have dropped some, unless `from_topic` or `from_archive`.
    """
    switch = plan_switch(config_path, warehouse)
    config, old = switched(config_path, switch), load_config(config_path)
    _check_origin(config, from_topic=from_topic, from_archive=from_archive, from_what_is_there=from_what_is_there)
    tables = Tables.of(spark, config)
    begun = from_archive and tables.read_text(f"{tables.warehouse}/{REBUILDING}") is not None
    taken = sorted(name for name in tables.names(tables.warehouse) if tables[name].exists())
    if taken and not begun:
        raise JobError(
            f"--warehouse: {warehouse!r} has a table {taken[0]!r} already; choose a new path or remove that directory"
        )
    failpoints.hit("rebuild_before_bootstrap")
    remedy = "start it again" if from_archive else "remove it and start again"
    leaves(f"{warehouse} is half made: {remedy}; the pipeline's own warehouse is as it was")
    building = _own_store(config)
    try:
        if from_archive:
            summary = rebuild_from_archive(spark, old, building, incomplete=from_what_is_there, on_commit=on_commit)
        else:
            summary = run(spark, building, bootstrap=True, on_commit=on_commit)
    finally:
        _remove_store(building)
    leaves(f"{warehouse} is whole, and the config does not name it yet: {switch.by_hand}")
    failpoints.hit("rebuild_after_bootstrap")
    return summary, switch


def _check_origin(config: Config, *, from_topic: bool, from_archive: bool, from_what_is_there: bool) -> None:
    """Raise JobError if the options do not go together, or if events of a topic may be missing."""
    if from_topic and from_archive:
        raise JobError("--from-topic: does not go with --from-archive; write one of them")
    if from_what_is_there and not from_archive:
        raise JobError("--from-what-is-there: goes with --from-archive only; remove it, or add that")
    if from_topic and not config.topics:
        raise JobError("--from-topic: goes with source.kind 'kafka' only; remove it")
    if must_name_origin(config) and not from_topic and not from_archive:
        source = next(side.source for side in config.inputs.values() if side.source.entry.has_topic)
        raise JobError(
            f"{source.place_at}: {source.place!r} may have dropped events of the sessions; pass --from-archive if the pipeline "
            "has an archive, or --from-topic to build from the events that the topic still holds"
        )


def _own_store(config: Config) -> Config:
    """Return the config with another store directory: the pipeline's stream may be running and hold its own.

    After the switch the stream restores its stores from the new tables.
    """
    store = f"{config.pipeline.store}/.rebuild-{os.getpid()}"
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"store": store})})


def _remove_store(config: Config) -> None:
    """Remove the lock and the stores of a rebuild that lie on this machine."""
    shutil.rmtree(Path(config.lock_dir).parent, ignore_errors=True)
    if not unset_variables(config.pipeline.store):
        shutil.rmtree(expanded(config.pipeline.store), ignore_errors=True)
