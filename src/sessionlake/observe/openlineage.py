"""OpenLineage events of a run, sent by the run itself.

Spark's listener can't report a batch: its tasks write Parquet files and the driver commits them. So no plan of Spark's
has the changelog as its output (docs/observability.md).
"""

import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
)
from openlineage.client.uuid import generate_new_uuid

from sessionlake.config.load import Config
from sessionlake.observe.datasets import Dataset
from sessionlake.observe.lineage import api_key

PARENT_VARIABLE = "OPENLINEAGE_PARENT_ID"
"""namespace/job/run id of the run that started this process, as OpenLineage's other tools read it; the DAGs' operator sets it."""
_SECONDS_TO_SEND, _SECONDS_TO_CLOSE = 2.0, 5.0
_RowsRead = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
_RowsWritten = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet


class OpenLineageSender:
    """Sends the events of a job's run."""

    def __init__(self, config: Config, job: str, *, streaming: bool) -> None:
        kind = job_type_job.JobTypeJobFacet("STREAMING" if streaming else "BATCH", "SESSIONLAKE", "JOB")
        self._job = Job(config.lineage.namespace, f"{config.pipeline.name}.{job}", {"jobType": kind})
        self._client = _client(config)
        self._run_id = str(generate_new_uuid())
        self._parent = _parent(os.environ.get(PARENT_VARIABLE, ""))

    def send(self, state: str, inputs: Sequence[Dataset], outputs: Sequence[Dataset], error: str | None = None) -> None:
        """Send an event. A failure is only logged, because lineage must not stop a pipeline."""
        facets: dict[str, Any] = dict(self._parent)
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "python")
        try:
            event = RunEvent(
                eventType=RunState[state],
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(self._run_id, facets),
                job=self._job,
                inputs=[_input(dataset) for dataset in inputs],
                outputs=[_output(dataset) for dataset in outputs],
                producer=f"https://pypi.org/project/sessionlake/{version('sessionlake')}",
            )
            self._client.emit(event)
        except Exception as failure:  # noqa: BLE001 (each transport has its own)
            logging.getLogger(__name__).warning("lineage: %s was not sent: %s", state, failure)

    def close(self) -> None:
        """Let the transport send its pending events, for some seconds at most; a failure is only logged."""
        try:
            self._client.close(_SECONDS_TO_CLOSE)
        except Exception as failure:  # noqa: BLE001 (as above)
            logging.getLogger(__name__).warning("lineage: the transport was not closed: %s", failure)


def _input(dataset: Dataset) -> InputDataset:
    facets: dict[str, Any] = {} if dataset.rows is None else {"inputStatistics": _RowsRead(rowCount=dataset.rows)}
    return InputDataset(dataset.namespace, dataset.name, inputFacets=facets)


def _output(dataset: Dataset) -> OutputDataset:
    facets: dict[str, Any] = {} if dataset.rows is None else {"outputStatistics": _RowsWritten(rowCount=dataset.rows)}
    return OutputDataset(dataset.namespace, dataset.name, outputFacets=facets)


def _parent(text: str) -> dict[str, Any]:
    """Return the facet that names the parent run. The namespace may be a URI with slashes, so the last two parts are job and run."""
    parts = text.rsplit("/", 2)
    if len(parts) != 3:
        return {}
    namespace, job, run = parts
    return {"parent": parent_run.ParentRunFacet(run=parent_run.Run(run), job=parent_run.Job(namespace, job))}


def _client(config: Config) -> OpenLineageClient:
    lineage = config.lineage
    if lineage.transport == "client":
        return OpenLineageClient()
    if lineage.transport == "file":
        return OpenLineageClient(config={"transport": {"type": "file", "log_file_path": lineage.path, "append": True}})
    transport: dict[str, Any] = {
        "type": "http",
        "url": lineage.url,
        "endpoint": lineage.endpoint,
        # Batches wait for the answer: a server that is away may cost them seconds now and then, no more.
        "timeout": _SECONDS_TO_SEND,
        "retry": {"total": 0},
    }
    key = api_key(config)
    if key is not None:
        transport["auth"] = {"type": "api_key", "apiKey": key}
    return OpenLineageClient(config={"transport": transport})
