"""The job's own commits on Delta tables: marked with run and step, retried if another commit came first."""

from copy import copy
from typing import Any

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.jobs.compact.plan import MB
from sessionlake.jobs.run import JobRun
from sessionlake.stream.input_log import BATCH_INPUTS
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import changelogs_in
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import fold_point

ATTEMPTS = 8
OF_BATCHES = (schemas.BATCHES, BATCH_INPUTS)
"""Tables that the stream saves many batches at once in, by commits that say nothing of them."""
OF_RUNS = (schemas.JOB_RUNS, schemas.QUALITY_RESULTS)
"""Tables that jobs append to, likewise."""
_SHUFFLE_BYTES = 8 * MB
"""Bytes of files to a partition of a shuffle. The files are compressed, and grow several times in memory."""
_MAX_PARTITIONS = 200


class Upkeep:
    """One run's access to the tables.

    It works in its own Spark session: a stream in the same process must not see its settings, above all not its commit
    metadata.
    """

    def __init__(self, spark: SparkSession, config: Config, run: JobRun) -> None:
        self.run = run
        self.changelogs = [of for of in changelogs_in(run.tables) if f"{of.changes}_version" in run.pinned]
        """The changelogs to fold, that of the batches first."""
        session = spark.newSession()
        cores = session.sparkContext.defaultParallelism
        size = config.compact.file_mb * MB
        # A fold's joins and sorts grow with the tables, not with the number of shards.
        folded = [name for of in self.changelogs for name in (of.snapshot, of.changes)]
        shuffled = sum(run.pinned[f"{name}_bytes"] for name in folded) // _SHUFFLE_BYTES
        settings = {
            "spark.sql.shuffle.partitions": str(max(cores, min(shuffled, _MAX_PARTITIONS))),
            # On little data its many small jobs cost more than they save.
            "spark.sql.adaptive.enabled": str(shuffled > cores).lower(),
            "spark.databricks.delta.optimize.maxFileSize": str(size),
            "spark.databricks.delta.optimize.minFileSize": str(size // 2),
            "spark.databricks.delta.vacuum.logging.enabled": "true",
            # VACUUM lists with as many tasks: of the default, 10,000, each costs milliseconds and finds nothing.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(
                2 * session.sparkContext.defaultParallelism
            ),
        }
        for name, value in settings.items():
            session.conf.set(name, value)
        self.spark = session
        self.tables = Tables.of(session, config)

    def seen_by(self, changelog: Changelog) -> "Upkeep":
        """Return the same hold for the fold of another changelog."""
        found = copy(self)
        found.tables = self.tables.seen_by(changelog)
        return found

    def metadata(self, table: str, step: str, **details: Any) -> dict[str, Any]:
        """Return the metadata of a step's commit. On a table of the stream's it repeats the metadata of the stream's last commit."""
        mark = {"job": self.run.job, "run_id": self.run.run_id, "step": step, **details}
        of = next((of for of in self.changelogs if of.snapshot == table), None)
        if of is not None:
            # The run was refused if somebody else had changed the snapshot by then; the next one looks from there.
            follows = {"follows": self.run.pinned[f"{table}_version"]} if step == "fold" else {"copied": True}
            return {"batch_id": fold_point(self.tables.seen_by(of)), **details, **follows, "maintenance": mark}
        last = None if table in (*OF_BATCHES, *OF_RUNS) else self.tables[table].last_commit()
        return {**(last.metadata if last else {}), "copied": True, "maintenance": mark}

    def execute(self, table: str, step: str, statement: str, **details: Any) -> None:
        """Run a statement that commits to a table, again if another commit came between."""

        def once() -> None:
            with self.tables.settings({USER_METADATA: user_metadata(self.metadata(table, step, **details))}):
                self.spark.sql(statement).collect()

        self.tables[table].retried(ATTEMPTS, once)

    def delete(self, table: str, step: str, condition: str, **details: Any) -> None:
        """Delete the rows of a condition. Files without such a row are not read, and files with no other rows are not written."""
        # The table has a name here because Spark takes "where" for one in "delete from t where (a)".
        statement = f"delete from {self.tables[table].sql_name()} as t where {condition}"  # noqa: S608 (a path, names and numbers)
        self.execute(table, step, statement, **details)

    def done(self, table: str, step: str) -> list[dict[str, Any]]:
        """Return Delta's account of the commits that this run has made in a step, in this or an earlier attempt."""
        found = []
        for version in self.tables[table].versions():
            if version <= self.run.pinned[f"{table}_version"]:
                break
            commit = self.tables[table].commit(version)
            mark = commit.metadata.get("maintenance", {}) if commit else {}
            if (mark.get("job"), mark.get("run_id"), mark.get("step")) == (self.run.job, self.run.run_id, step):
                found.append({**(self.tables[table].commit_info(version) or {}), **mark})
        return found


def total(commits: list[dict[str, Any]], *metrics: str) -> int:
    """Return the sum of Delta's metrics over commits."""
    return sum(int(commit.get("operationMetrics", {}).get(name, 0)) for commit in commits for name in metrics)
