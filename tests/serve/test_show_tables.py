"""`show tables` over the pipelines of a project, on a warehouse that a real stream has written (tests/fixtures); no JVM."""

from pathlib import Path

import pytest

from sessionlake.serve.queries import answer_project_sql, shows_tables
from tests.stream.old_warehouses import FIXTURES, unpacked


@pytest.mark.parametrize("query", ["show tables", " SHOW  TABLES ; ", "show all tables"])
def test_the_tables_of_each_pipeline_are_listed_and_no_part_of_ours(tmp_path: Path, query: str) -> None:
    config = unpacked(tmp_path, FIXTURES / "session-0.2.tar.gz")
    with answer_project_sql([config], query) as answer:
        rows = list(answer.rows)
    assert answer.columns == ["pipeline", "name"]
    assert {pipeline for pipeline, _ in rows} == {config.pipeline.name}
    assert {"sessions_live", "session_changelog", "late_events", "batches"} <= {name for _, name in rows}
    assert not {"new_batches", "stored_batches", "written_batches"} & {name for _, name in rows}


def test_other_statements_are_left_to_the_engine() -> None:
    assert not shows_tables("show tables from visits")
    assert not shows_tables("select 'show tables'")
