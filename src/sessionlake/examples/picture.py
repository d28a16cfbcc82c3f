"""The demo's picture: sessions a month, and when in the week people sit down to code. It needs matplotlib."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.warehouse.changelog import SESSIONS


def draw(spark: SparkSession, file: Path) -> None:
    """Write the picture of all live sessions to `file`."""
    live = spark.table(SESSIONS.live)
    months: Any = live.groupBy(F.trunc("session_start", "month").alias("month")).count().orderBy("month").toPandas()
    weekdays: Any = (
        live.groupBy(F.weekday("session_start").alias("day"), F.hour("session_start").alias("hour")).count().toPandas()
    )
    figure = Figure(figsize=(10, 7), layout="constrained")
    top, bottom = figure.subplots(2, 1)
    top.bar(months["month"], months["count"], width=25, color="#3b7ea1")
    top.set(title="Coding sessions a month", ylabel="sessions")
    grid = weekdays.pivot_table(index="day", columns="hour", values="count", fill_value=0).reindex(
        index=range(7), columns=range(24), fill_value=0
    )
    image = bottom.imshow(grid, aspect="auto", cmap="YlGnBu")
    bottom.set(
        title="When sessions start (UTC)",
        xlabel="hour",
        yticks=range(7),
        yticklabels=["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"],
    )
    figure.colorbar(image, ax=bottom, label="sessions")
    figure.savefig(file, dpi=110)
