"""The right to erasure: all that is kept of some keys goes, from the stream's state to the last file, with a proof."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.durations import format_duration, parse_duration
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import JobError
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.forget.documents import documents_dir, erase_documents
from sessionlake.jobs.forget.exclusive import one_at_a_time
from sessionlake.jobs.forget.files import erase_files
from sessionlake.jobs.forget.keys import Keys, matching
from sessionlake.jobs.forget.lake import Lake
from sessionlake.jobs.forget.logs import erase_in_logs
from sessionlake.jobs.forget.lookups import await_versions, erase_versions
from sessionlake.jobs.forget.progress import in_flight, read_until
from sessionlake.jobs.forget.proof import Proof, prove
from sessionlake.jobs.forget.readers import await_readers
from sessionlake.jobs.forget.stores import await_removal, erase_stores, store_if_free
from sessionlake.jobs.forget.wait_budget import WaitBudget, Waits
from sessionlake.jobs.late import ledger as late
from sessionlake.jobs.redeem import ledger as redeem
from sessionlake.jobs.run import JobReport, JobRun, OnStep, start_run
from sessionlake.jobs.tombstones import emitted_tombstones, followed, identity_of, named, tombstones
from sessionlake.sources.equal_types import asked_key
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import find_last_batch, last_batch
from sessionlake.warehouse.changelog import FOLD
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import ERASURES, merged_rows

JOB = "forget"
_PASSES = 5
_KEYS_SHOWN = 100


def forget(
    spark: SparkSession,
    config: Config,
    keys: Iterable[str],
    *,
    wait: str = "10 minutes",
    apply: bool = True,
    run_id: str | None = None,
    dry_run: bool = False,
    wait_budget: WaitBudget | None = None,
    data_docs: Path | None = None,
    on_step: OnStep = lambda _: None,
) -> JobReport:
    """Remove the keys' rows through the stream, then from tables, files, logs, local stores and validation results; prove it.

    `apply` runs passes of the stream if none runs on this machine. If one runs, it has the time `wait` to read the
    tombstones, and the same time again to remove the stores. Every step finds out what is left to do. So a killed run
    can be repeated, with the same run id or another.

    The numbers are those of the last attempt. `found` counts the places that still hold a key, `unsearched` those that
    could not be searched. A run with either is not finished: repeat it.
    """
    chosen = _chosen(Tables.of(spark, config), config, keys)
    run = start_run(
        spark,
        config,
        JOB,
        run_id=run_id,
        arguments={"keys": chosen.hashes},
        pin=lambda tables: {"hosts": last_batch(tables).places.hosts},
        dry_run=dry_run,
        on_step=on_step,
    )
    if run.finished is not None:
        return run.finished
    lake = Lake(run.tables, config, chosen)
    wait_budget = wait_budget or WaitBudget(parse_duration(wait, "wait"))
    documents = documents_dir(config, data_docs)
    if dry_run:
        proof = proof_of(lake, on_step, (), documents, _seen(lake, on_step))
        numbers = {
            lake.tables.changelog.snapshot: _live(lake).count(),
            "found": proof.found,
            "unsearched": len(proof.unsearched),
        }
        return run.finish(numbers, proof.lines())
    with one_at_a_time(config, wait_budget.until_late()):
        return _erase(lake, run, wait_budget, documents, apply=apply)


def _chosen(tables: Tables, config: Config, keys: Iterable[str]) -> Keys:
    return Keys.of(keys, partial(asked_key, config, find_last_batch(tables)))


def _erase(lake: Lake, run: JobRun, wait_budget: WaitBudget, documents: Path, *, apply: bool) -> JobReport:
    seen = _seen(lake, run.say)
    counts = {"tombstones": _settle(lake, run, wait_budget, apply=apply)}
    with run.step("waiting for the pipelines that read the results"):
        await_readers(lake, wait_budget.until_late(), run.run_id, apply=apply)
    removed = _remove(lake, run, wait_budget)
    with run.step("fencing other jobs that have read the keys"):
        _keep_out(lake)
    # A fold, a job, or an append of the stream may have brought rows in meanwhile.
    removed += _remove(lake, run, wait_budget)
    counts |= {f"rows_of_{name}": removed[name] for name in lake.holders}
    with store_if_free(lake.config) as alone:
        _erase_traces(lake, run, counts, wait_budget, alone=alone)
    counts["documents"] = erase_documents(documents, lake.keys)
    with run.step("waiting for the stream to remove its stores"):
        await_removal(lake.config, wait_budget.until_late())
        await_versions(lake, partial(_is_free, lake.config), wait_budget.until_late())
    # A run that was started by a release which pinned nothing has no hosts.
    proof = proof_of(lake, run.say, run.pinned.get("hosts", ()), documents, seen)
    counts |= {"source_rows": proof.source_rows, "found": proof.found, "unsearched": len(proof.unsearched)}
    if proof.clean:
        return run.finish(counts, proof.lines())
    return JobReport(JOB, run.run_id, counts, [*proof.lines(), *_remedies(proof, alone=alone)], failed=True)


def _remove(lake: Lake, run: JobRun, wait_budget: WaitBudget) -> Counter[str]:
    """Remove the keys' rows until none is left; return the number of rows by table.

    After some passes the rest is left to the proof, because then a producer still sends the keys.
    """
    removed: Counter[str] = Counter()
    for _ in range(_PASSES):
        run.say("looking for rows of the keys")
        found = {name: files for name, files in lake.files().items() if files}
        if not found:
            break
        for name, files in found.items():
            with run.step(f"removing {sum(files.values()):,} rows of {name}", name):
                removed[name] += lake.delete(name, files, wait_budget.until_late())
    return removed


def proof_of(lake: Lake, on_step: OnStep, hosts: Iterable[str], documents: Path, seen: list[str]) -> Proof:
    """Look for the keys wherever they can be; nothing is changed. `hosts` had shards before; the last batch's count too."""
    on_step("looking for the keys in tables, files, logs and stores")
    now = find_last_batch(lake.tables)
    with store_if_free(lake.config) as alone:
        proof = prove(lake, {*hosts, *(now.places.hosts if now else ())}, documents, alone=alone)
    return replace(proof, keys=seen)


def _seen(lake: Lake, on_step: OnStep) -> list[str]:
    """Return, for people, how many rows each key has; keys without rows first, since they may be mistyped."""
    on_step("looking for each key in the tables")
    labels, counts = lake.keys.labels, lake.counts_by_key()
    line_of = dict(zip(lake.keys.values, lake.keys.lines, strict=True))
    ordered = sorted(counts, key=lambda key: (counts[key] > 0, line_of[key]))
    lines = [f"{labels[key]}: {f'{counts[key]:,} rows' if counts[key] else 'in no table'}" for key in ordered]
    more = [f"and {len(lines) - _KEYS_SHOWN:,} keys more"] if len(lines) > _KEYS_SHOWN else []
    return lines[:_KEYS_SHOWN] + more


def _settle(lake: Lake, run: JobRun, wait_budget: WaitBudget, *, apply: bool) -> int:
    """Have the stream drop the keys' rows and read every correction that names a key; return the tombstones sent.

    The first pass comes before the first look: a batch that a crash interrupted may hold the keys too. A row that
    stays though its tombstone was read is not the stream's any more, but a row that some job has brought back.
    """
    sent = passes = 0
    late, wait = False, wait_budget.until_late()
    while True:
        run.say("waiting for the stream")
        applied = apply and passes < _PASSES and apply_corrections(lake.tables.spark, lake.config)
        passes += applied
        new, unread = _send(lake, run), in_flight(lake)
        sent += new
        if not unread:
            return sent
        if passes == _PASSES or late:
            raise JobError(
                f"forget: after {passes} passes and {format_duration(wait_budget.wait_us)} the stream has not read {sum(unread.values())} corrections of the keys, {new} of them new; "
                f"see that the stream runs and that no producer sends the keys, then repeat with --run-id {run.run_id}"
            )
        late = not (applied or _is_read(lake, max(unread), wait))


def _is_read(lake: Lake, version: int, wait: Waits) -> bool:
    """Wait until the stream has read a version of the corrections; False if the time to wait is over before."""
    while read_until(lake) <= version:
        if not wait():
            return False
    return True


def _send(lake: Lake, run: JobRun) -> int:
    """Append a tombstone for each row, unless this job has sent a tombstone for the row's revision."""
    of = lake.tables.changelog
    before = emitted_tombstones(lake.tables[schemas.CORRECTIONS].read(), of, JOB)
    new = named(_live(lake), of).join(before, identity_of(of), "left_anti").persist()
    try:
        count = new.count()
        if count and (names := followed(lake.config)) is not None:
            raise JobError(
                f"forget: {count:,} rows have the keys, and follow the rows of {names}; forget the keys there first, then repeat with --run-id {run.run_id}"
            )
        if count:
            with run.step(f"sending {count:,} tombstones", "tombstones"):
                run.append(schemas.CORRECTIONS, tombstones(run, new).coalesce(1), run.steps_done(schemas.CORRECTIONS))
    finally:
        new.unpersist()
    return count


def _live(lake: Lake) -> DataFrame:
    def of_keys(rows: DataFrame) -> DataFrame:
        return matching(rows.alias("t"), lake.frame, F.expr(f"t.{lake.tables.changelog.key} = k.key"))

    return merged_rows(lake.tables, narrowed=of_keys)


def _keep_out(lake: Lake) -> None:
    """Keep jobs that read rows of the keys before they were removed from writing them after it.

    A fold that commits before this may have brought rows back; one that would commit later fails, and reads again.
    """
    for claims in (late.CLAIMS, redeem.CLAIMS):
        claims.fence(lake.tables)
    for of in lake.changelogs:
        lake.tables[of.snapshot].set_app_versions({FOLD: lambda reached: reached, ERASURES: lambda count: count + 1})
    failpoints.hit("forget_kept_out")


def _erase_traces(lake: Lake, run: JobRun, counts: dict[str, int], wait_budget: WaitBudget, *, alone: bool) -> None:
    with run.step("removing files"):
        erased = erase_files(lake, wait_budget.until_late(), alone=alone)
        counts["files"] = sum(erased.values())
        for name in (name for name, files in erased.items() if files):
            lake.change(name, f"vacuum {lake.tables[name].sql_name()}", wait_budget.until_late())
    with run.step("removing traces in logs"):
        counts["log_files"] = erase_in_logs(lake, alone=alone)
    with run.step("removing local stores"):
        counts["stores"], counts["stores_marked"] = erase_stores(lake.config, lake.keys, alone=alone)
    with run.step("removing versions of tables that are looked up"):
        counts["lookups"] = erase_versions(lake, alone=alone)


def _is_free(config: Config) -> bool:
    with store_if_free(config) as alone:
        return alone


def _remedies(proof: Proof, *, alone: bool) -> Iterable[str]:
    if proof.places and alone:
        yield "repeat the run; if rows came back, a producer or a job still sends the keys"
    if "versions of tables that are looked up" in proof.places:
        yield "a table that is looked up still has a key: remove it there first, then repeat the run"
    if proof.places and not alone:
        yield "a stream runs, which may read old checkpoints of logs and files of no log: repeat the run with the stream stopped"
    if proof.unsearched:
        yield "the run is finished when nothing is unsearched: run it on the machine of the stores, or remove the named places and start a new run"


def check(
    spark: SparkSession,
    config: Config,
    keys: Iterable[str],
    on_step: OnStep = lambda _: None,
    data_docs: Path | None = None,
) -> Proof:
    """Return the proof alone, without a run."""
    tables = Tables.of(spark, config)
    lake = Lake(tables, config, _chosen(tables, config, keys))
    return proof_of(lake, on_step, (), documents_dir(config, data_docs), _seen(lake, on_step))
