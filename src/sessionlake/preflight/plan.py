"""`sessionlake plan`: the effect of a config on the tables that are there, told before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionlake.aggregates.layouts import Layout
from sessionlake.config.load import Config
from sessionlake.errors import SessionlakeError
from sessionlake.operators.registry import kind_of
from sessionlake.preflight.sources import UnseenError, sources_without_spark
from sessionlake.stream.changes import Change, changes
from sessionlake.stream.kind import Kind
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.pipeline import operator_of
from sessionlake.stream.wrapped import inner, store_layout
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake


@dataclass(frozen=True)
class Plan:
    """The differences of a config from the last commit."""

    pipeline: str
    batch_id: int | None
    """The last batch; None if there is none yet."""
    watermark_us: int | None
    changes: tuple[Change, ...]

    @property
    def refused(self) -> tuple[str, ...]:
        """The settings for which `run` refuses the config."""
        return tuple(change.name for change in self.changes if change.refusal is not None)

    def fields(self) -> Mapping[str, Any]:
        """Return it as JSON values; the watermark in microseconds."""
        return {
            "pipeline": self.pipeline,
            "batch_id": self.batch_id,
            "watermark_us": self.watermark_us,
            "runs": not self.refused,
            "changes": [change.fields() for change in self.changes],
        }


def read_plan(config: Config) -> Plan:
    """Return the differences of a config from the last commit of its warehouse. Starts no JVM.

    Raises LakeError if the tables can't be read without Spark.
    """
    last, kind = find_last_batch(Lake.of(config)), kind_of(config)
    if last is None:
        return Plan(config.pipeline.name, None, None, ())
    found = changes(config, last, kind.bound_settings(), _store_layout(config, kind, last))
    return Plan(config.pipeline.name, last.batch_id, last.watermark_us, tuple(found))


def _store_layout(config: Config, kind: type[Kind], last: BatchCommit) -> str | None:
    """Return the layout of the stores under the config; None if its operator can't be made, for which `check` gives the reason."""
    try:
        made = kind.make(config, sources_without_spark(config), Pinned.of(last))
    except (UnseenError, SessionlakeError):
        return None
    operator = operator_of(made, [Layout.read(fields) for fields in last.settings.layouts])
    return store_layout(operator, made.store_layout(inner(operator)))
