"""The names of every operator's tables and columns: they are stored, and so never change by accident."""

import subprocess
import sys

import pytest

from sessionlake.config.operators import OPERATORS, named
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.dialects import DUCKDB, TRINO

NAMES = {
    "session": (
        "session_changelog", "sessions", "sessions_live", "all_sessions", "session_start", "session_end", "session_date",
        ("session_key", "session_start"),
    ),
    "window": (
        "window_changelog", "windows", "windows_live", "all_windows", "window_start", "window_end", "window_date",
        ("window_key", "window_start"),
    ),
    "count": (
        "window_changelog", "windows", "windows_live", "all_windows", "window_start", "window_end", "window_part",
        ("window_key", "window_start"),
    ),
    "table": (
        "table_changelog", "table_snapshot", "table_live", "all_table_rows", "event_time", "event_time", "table_part",
        ("table_key",),
    ),
    "group": (
        "group_changelog", "groups", "groups_live", "all_groups", "changed_at", "changed_at", "group_part",
        ("group_key",),
    ),
    "join": (
        "join_changelog", "joins", "joins_live", "all_joins", "join_time", "join_time", "join_date",
        ("join_key", "left_position", "right_position"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", NAMES)
def test_names_of_tables_and_columns(operator: str) -> None:
    of: Changelog = named(OPERATORS[operator].changelog)
    assert (of.changes, of.snapshot, of.live, of.every, of.start, of.end, of.date, of.identity) == NAMES[operator]
    assert of.guarded[:2] == of.tables == (of.changes, of.snapshot)
    assert of.numbered_parts == of.date.endswith("_part")


@pytest.mark.parametrize("operator", NAMES)
def test_an_engine_with_rounded_times_names_rows_by_their_id(operator: str) -> None:
    of: Changelog = named(OPERATORS[operator].changelog)
    assert of.identity_in(DUCKDB) == of.identity
    assert of.identity_in(TRINO) == ((of.key, of.id) if len(of.identity) > 1 else of.identity)


def test_a_changelog_is_known_without_spark_and_duckdb() -> None:
    code = (
        "import sys; from sessionlake.config.operators import OPERATORS, named; "
        "[named(entry.changelog) for entry in OPERATORS.values()]; "
        "sys.exit(', '.join({'pyspark', 'duckdb', 'deltalake', 'rocksdict'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_packed_states_are_left_out_and_a_column_of_the_user_is_not() -> None:
    columns = ["key", "state", "v"]
    packed = {
        entry.rows.command: named(entry.changelog).without_states(columns) != columns for entry in OPERATORS.values()
    }
    assert {name for name, hidden in packed.items() if hidden} >= {"sessions", "windows", "groups"}
    assert not {name for name, hidden in packed.items() if hidden} & {"table", "outputs", "joins"}
