"""The demo's picture: sessions a month, and when in the week people sit down to code. It needs matplotlib."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def draw(spark: SparkSession, file: Path) -> None:
    """Write the picture of all live sessions to `file`."""
    live = spark.table("sessions_live")
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
    """Write the picture of the views `weeks` and `bursts`: changes a week, a panel a project, and the greatest bursts.

    The scales are logarithmic: a week of a release has a hundred times the changes of a quiet week.
    """
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
    projects = weeks.groupby("window_key")["event_count"].sum().sort_values(ascending=False).index
    figure = Figure(figsize=(10, 1.3 * len(projects) + 2.6), layout="constrained")
    heights = [1.0] * len(projects) + [1.8]
    *panels, last = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    for project, panel in zip(projects, panels, strict=True):
        of_project = weeks[weeks["window_key"] == project]
        panel.scatter(of_project["window_start"], of_project["event_count"], s=6, color="#3b7ea1")
        panel.set(yscale="log", ylim=(0.7, 1.5 * weeks["event_count"].max()))
        panel.set_title(f"{project}: {of_project['event_count'].sum():,} changes", loc="left", fontsize="medium")
        panel.yaxis.set_major_formatter("{x:,.0f}")
        panel.grid(alpha=0.3)
    panels[0].annotate(
        "changes a week (tumbling windows)", (1, 1.05), xycoords="axes fraction", ha="right", fontsize="small"
    )
    last.bar(bursts["month"], bursts["most"], width=25, color="#3b7ea1")
    last.set(yscale="log")
    last.yaxis.set_major_formatter("{x:,.0f}")
    last.set_title(
        "Most changes of one author within seven days (sliding windows), by month", loc="left", fontsize="medium"
    )
    last.grid(alpha=0.3, axis="y")
    figure.savefig(file, dpi=110)
