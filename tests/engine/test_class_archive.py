"""The archive of Spark's classes: mapped by the JVM of this run, one for each PySpark, and gone with it."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.engine import class_archive
from sessionlake.engine.class_archive import find_archive, make_archive
from sessionlake.errors import ConfigError
from sessionlake.jars import find_jars
from sessionlake.jars.java import pyspark_home


def test_java_has_mapped_it(spark: SparkSession) -> None:
    archive = find_archive(find_jars())
    assert archive is not None, "`make setup` makes it"
    process = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    assert str(archive) in Path(f"/proc/{process}/maps").read_text()


def test_other_jars_have_another_one(tmp_path: Path) -> None:
    other = tmp_path / "other.jar"
    other.touch()
    assert find_archive([other]) is None


def test_a_jar_that_was_written_again_has_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would refuse the archive of before without a word, and every start would take as long as without any."""
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark.jar").touch()
    monkeypatch.setattr(class_archive, "pyspark_home", lambda: jars.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = class_archive._file([])
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert find_archive([]) == archive
    os.utime(jars / "spark.jar", (1, 1))
    assert find_archive([]) is None


def test_archives_of_a_pyspark_that_is_gone_or_had_other_jars_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "sessionlake" / "classes"
    folder.mkdir(parents=True)
    for name, pyspark in (("gone", tmp_path / "gone"), ("older", pyspark_home()), ("others", tmp_path)):
        (folder / f"{name}.jsa").touch()
        (folder / f"{name}.for").write_text(str(pyspark))

    def fails(options: str) -> SparkSession:
        (half,) = [word.removeprefix("-XX:ArchiveClassesAtExit=") for word in options.split()]
        Path(half).touch()
        raise ConfigError("no Spark")

    jar = tmp_path / "a.jar"
    jar.touch()
    with pytest.raises(ConfigError, match="no Spark"):
        make_archive([jar], fails)
    assert sorted(file.name for file in folder.iterdir()) == ["others.for", "others.jsa"]
    assert find_archive([jar]) is None
