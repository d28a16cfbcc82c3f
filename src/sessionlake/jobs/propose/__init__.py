"""A look at a sample of events, and the config that it suggests. Neither Spark nor Java is needed."""

from sessionlake.jobs.propose.choose import Choice, choose
from sessionlake.jobs.propose.measure import Measured, measure
from sessionlake.jobs.propose.sample import Sample, read_sample
from sessionlake.jobs.propose.text import config_text

__all__ = ["Choice", "Measured", "Sample", "choose", "config_text", "measure", "read_sample"]
