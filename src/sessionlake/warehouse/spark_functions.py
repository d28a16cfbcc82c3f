"""`pyspark.sql.functions`, imported when a function is first used: commands without Spark import the sources and operators, too."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.functions import *  # noqa: F403 (all of them)


def __getattr__(name: str) -> Any:
    return getattr(import_module("pyspark.sql.functions"), name)
