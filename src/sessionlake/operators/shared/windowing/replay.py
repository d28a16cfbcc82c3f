"""How far a pipeline was before each of its batches, by the log of their inputs, for jobs that judge events again."""

from collections.abc import Mapping, Sequence

from sessionlake.operators.shared.windowing.emission import Progress, after_batch
from sessionlake.operators.shared.windowing.policies import Policies
from sessionlake.stream.input_log import BatchInputs
from sessionlake.stream.watermark import NO_WATERMARK


def progress_before(inputs: Sequence[BatchInputs]) -> Mapping[int, Progress]:
    """Return the progress before each batch, without the effects of a retention by number."""
    found, at = {}, Progress()
    for i in inputs:
        found[i.batch_id] = at
        live, reached = i.settings, NO_WATERMARK if i.watermark_us is None else i.watermark_us
        emit = Policies(**live.get("emit") or {})
        at = after_batch(emit, live["grace_us"], live["retention_us"], at, reached, None)
    return found


def by_number(inputs: Sequence[BatchInputs]) -> bool:
    """Say whether any batch had a retention by number: only the batch knew which events that refused."""
    return any(i.settings.get("retention_count") is not None for i in inputs)
