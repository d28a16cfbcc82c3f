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


def draw_windows(spark: SparkSession, file: Path) -> None:
    """Write the picture of the views `weeks` and `bursts`: changes a week of each project, and the greatest bursts."""
    weeks: Any = spark.table("weeks").select("window_start", "window_key", "event_count").toPandas()
    bursts: Any = (
        (
            spark.table("bursts")
            .groupBy(F.trunc("window_end", "month").alias("month"))
            .agg(F.max("event_count").alias("most"))
        )
        .orderBy("month")
        .toPandas()
    )
    figure = Figure(figsize=(10, 7), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    stacked = weeks.pivot_table(index="window_start", columns="window_key", values="event_count", fill_value=0)
    top.stackplot(stacked.index, stacked.T.to_numpy(), labels=list(stacked.columns))
    top.set(title="Changes a week, by project (tumbling windows)", ylabel="changes")
    top.legend(loc="upper left", fontsize="small")
    bottom.bar(bursts["month"], bursts["most"], width=25, color="#3b7ea1")
    bottom.set(title="Most changes of one author within seven days (sliding windows), by month", ylabel="changes")
    figure.savefig(file, dpi=110)
