"""A look at a sample of events, and the config that it suggests. Neither Spark nor Java is needed."""

from sessionlake.propose.choose import Choice, choose
from sessionlake.propose.measure import Measured, measure
from sessionlake.propose.sample import Sample, read_sample
from sessionlake.propose.text import config_text

__all__ = ["Choice", "Measured", "Sample", "choose", "config_text", "measure", "read_sample"]
