"""The files of a version of a table, as Delta's own objects."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def files_of(spark: "SparkSession", snapshot: Any) -> Any:
    """Return the files of a snapshot as Delta's own dataset of them.

    Delta keeps a list of up to 50 files (`spark.databricks.delta.allFilesInCrc.thresholdNumFiles`) in each version's checksum file, which
    it has read with the snapshot. Its own `allFiles` replays the log even then, which is a Spark job of 0.3 s or more.
    """
    checksum = snapshot.checksumOpt()
    listed = checksum.get().allFiles() if checksum.isDefined() else checksum
    if not listed.isDefined():
        return snapshot.allFiles()
    jvm: Any = spark._jvm
    implicits = getattr(getattr(jvm.org.apache.spark.sql.delta.implicits, "package$"), "MODULE$")
    return implicits.RichAddFileSeq(listed.get()).toDS(spark._jsparkSession)
