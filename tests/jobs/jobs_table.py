"""The table of jobs in docs/commands.md, as the registry has it; run as a module it writes it there."""

import re
from collections.abc import Iterable
from pathlib import Path

from sessionlake.jobs.registry import (
    CHANGES,
    EVENTS_AGAIN,
    JOBS,
    RULE_TABLES,
    SINK,
    SNAPSHOT,
    SOURCE,
    STATE_CHANGES,
    STATE_SNAPSHOT,
    Job,
)

FILE = Path(__file__).parents[2] / "docs" / "commands.md"
PLACE = re.compile(r"(<!-- jobs -->\n).*(<!-- /jobs -->)", re.DOTALL)
WORDS = {
    SOURCE: "the source",
    EVENTS_AGAIN: "the archive or the source",
    RULE_TABLES: "tables of `[expire]`",
    CHANGES: "the changelog",
    SNAPSHOT: "the snapshot",
    STATE_CHANGES: "the state's changelog",
    STATE_SNAPSHOT: "the state's snapshot",
    SINK: "the topics of `[sink.kafka]`, the tables of `[sink.delta]` and `[sink.postgres]`, the calls of `[sink.python]`",
}
HEAD = "| command | does | options | reads | writes | record | DAG |\n| --- | --- | --- | --- | --- | --- | --- |\n"


def table() -> str:
    return HEAD + "".join(map(_row, JOBS))


def documented() -> str:
    found = PLACE.search(FILE.read_text())
    assert found, f"{FILE} has no place for the table"
    return found[0]


def with_marks(text: str) -> str:
    return f"<!-- jobs -->\n{text}<!-- /jobs -->"


def _row(job: Job) -> str:
    page = FILE.parent / "jobs" / f"{job.name}.md"
    name = f"[`{job.command}`](jobs/{page.name})" if page.exists() else f"`{job.command}`"
    options = " ".join(f"`{option.flag}`" for option in job.options)
    dag = f"`NAME.{job.name}`" if job.dag else ""
    cells = (name, job.summary, options, _tables(job.reads), _tables(job.writes), "yes" if job.recorded else "", dag)
    return f"| {' | '.join(cells)} |\n"


def _tables(names: Iterable[str]) -> str:
    return ", ".join(WORDS.get(name, f"`{name}`") for name in names)


if __name__ == "__main__":
    FILE.write_text(PLACE.sub(lambda _: with_marks(table()), FILE.read_text()))
