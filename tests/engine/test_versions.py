"""Spark and Delta of other versions than those that the inner workings are written for: one line at the start."""

import pytest

from sessionlake.engine.spark import check_versions
from sessionlake.errors import ConfigError


@pytest.mark.parametrize(
    ("spark", "delta", "message"),
    [
        ("4.2.0", "4.3.1", "Spark: this is version 4.2.0, .* works with 4.1 only"),
        ("4.1.1", "4.4.0", "Delta: .*4.3 only"),
    ],
)
def test_other_minor_versions_are_refused(spark: str, delta: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_versions(spark, delta)


def test_other_patch_versions_are_not() -> None:
    check_versions("4.1.9", "4.3.0-SNAPSHOT")
