"""A job's refusals, raised before Spark starts."""

from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.jobs.registry import Job
from sessionlake.jobs.run import require_known
from sessionlake.preflight.check import require_ready
from sessionlake.preflight.needs import OF_JOB
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.lake import Lake


def require_job(config: Config, file: str | Path, job: Job) -> None:
    """Raise the error that the job would raise: the operator has no use for it, there are no batches yet, or the config has problems."""
    if job.recorded:
        require_known(config, job.name)
        # Tables in an object store may be invisible here and visible to Spark, which has other credentials. A job
        # whose arguments leave nothing to do says so first.
        if "://" not in config.pipeline.warehouse and not job.may_need_nothing:
            last_batch(Lake.of(config))
    if job.corrections is not None or job.applies_itself:
        require_ready(config, file, OF_JOB)
