"""What a job refuses, told before Spark starts."""

from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.jobs.registry import Job
from sessionlake.jobs.run import require_known
from sessionlake.preflight.check import require_ready
from sessionlake.preflight.needs import OF_JOB
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.lake import Lake


def require_job(config: Config, file: str | Path, job: Job) -> None:
    """Raise what the job would raise: where it is not for such pipelines, where there are no batches yet, where the config has problems."""
    if job.recorded:
        require_known(config, job.name)
        # What can't be seen in an object store may be for Spark to see, whose credentials are other ones. A job that may have
        # nothing to do by its own arguments says so first.
        if "://" not in config.pipeline.warehouse and not job.may_need_nothing:
            last_batch(Lake.of(config))
    if job.corrections is not None or job.applies_itself:
        require_ready(config, file, OF_JOB)
