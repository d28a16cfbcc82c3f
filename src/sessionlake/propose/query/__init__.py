"""A query of Spark's SQL as a pipeline: its config, and the same columns of the live view. Neither Spark nor Java is needed."""

from sessionlake.propose.query.pipeline import Pipeline, pipeline_of

__all__ = ["Pipeline", "pipeline_of"]
