"""A look at a sample of events, and the config that it suggests. Neither Spark nor Java is needed."""

from sessionlake.propose.choose import Choice, choose
from sessionlake.propose.measure import Measured, measure
from sessionlake.propose.sample import Sample, name_from, read_sample
from sessionlake.propose.text import config_text
from sessionlake.propose.windows import MeasuredTable, MeasuredWindows, measure_table, measure_windows

__all__ = [
    "Choice",
    "Measured",
    "MeasuredTable",
    "MeasuredWindows",
    "Sample",
    "choose",
    "config_text",
    "measure",
    "measure_table",
    "measure_windows",
    "name_from",
    "read_sample",
]
