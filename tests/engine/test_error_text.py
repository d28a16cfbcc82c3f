"""An error that a worker raised is known again in Spark's text of it; what is not ours is left alone."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionlake import errors
from sessionlake.engine.error_text import error_in
from sessionlake.errors import BadEventsError, SessionlakeError, SourceError, StoreHeldError


class ElsewhereError(SourceError):
    """A class of the tree that another module has."""


ElsewhereError.__module__ = "sessionlake.somewhere.deeper"


def classes(root: type[SessionlakeError]) -> list[type[SessionlakeError]]:
    return [root, *(found for cls in root.__subclasses__() for found in classes(cls))]


@pytest.mark.parametrize("cls", [c for c in classes(SessionlakeError) if c.__module__ == errors.__name__])
def test_each_class_comes_back(cls: type[SessionlakeError]) -> None:
    text = f"Job aborted: Traceback (most recent call last):\n  File \"x.py\"\n{cls.__module__}.{cls.__name__}: what: 'v', do\n\n\tat org"
    found = error_in(text)
    assert (type(found), str(found)) == (cls, "what: 'v', do")


def test_a_class_of_another_module() -> None:
    assert type(error_in("x sessionlake.somewhere.deeper.ElsewhereError: gone")) is ElsewhereError


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: sessionlake.errors: no class",
        "sessionlake.errors.first_line: a function",
        "sessionlake.errors.Mapping: what the module imports",
        "sessionlake.errors.SuchAnError: there is none",
        "mysessionlake.errors.SourceError: another package's",
        "sessionlake.engine.SourceError: of another place",
        "java.lang.OutOfMemoryError",
        "",
    ],
)
def test_what_is_not_ours_stays_unexplained(text: str) -> None:
    assert error_in(text) is None


def test_the_cause_comes_first_and_what_is_not_ours_is_passed_over() -> None:
    text = "sessionlake.errors.Nothing: x\nsessionlake.errors.StoreHeldError: held\nthe cause of:\nsessionlake.errors.SourceError: y"
    assert type(error_in(text)) is StoreHeldError


def test_what_a_worker_of_spark_raises(spark: SparkSession) -> None:
    def fail(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise BadEventsError("aggregates.mine: 'x' is no number; mend the class", {1: "why"})

    with pytest.raises(PySparkException) as caught:
        spark.range(1).mapInArrow(fail, "id long").collect()
    found = error_in(str(caught.value))
    assert (type(found), str(found)) == (BadEventsError, "aggregates.mine: 'x' is no number; mend the class")
