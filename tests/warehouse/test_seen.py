"""What a reader's commits say of another pipeline's results; without Spark."""

import json
from pathlib import Path

import pytest

from sessionlake.operators.sessions.changelog import SESSIONS
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.seen import Visible
from tests.support import make_config

MINUTE = 60_000_000
GAP, NOW = 10, 1000
"""Minutes."""


def batch(grace: int, watermark: int = NOW, batch_id: int = 7) -> BatchCommit:
    """Return a batch that ran under a grace; both in minutes."""
    live = {"grace_us": grace * MINUTE}
    state = {"watermark_us": watermark * MINUTE}
    return BatchCommit("p", "c", batch_id, "x", state, {}, (), "1", Settings({}, live, {}), None, 0, 0, version=3)


@pytest.mark.parametrize("config", [1, 60, 300])
def test_rows_are_final_by_the_grace_of_the_batch_and_not_by_that_of_the_config(tmp_path: Path, config: int) -> None:
    """The pipeline in front may have been started anew with another grace since its reader was."""
    sections = {"gap": f"{GAP} minutes", "grace": f"{config} minutes", "retention": "12 hours"}
    section = make_config(tmp_path, session=sections).section
    raised = Visible.of(batch(120), section, None)
    assert raised.close_us == (NOW - GAP - 120) * MINUTE
    lowered = Visible.of(batch(5, batch_id=8), section, raised)
    assert lowered.close_us == (NOW - GAP - 5) * MINUTE
    # A row that was final is never less so.
    assert Visible.of(batch(120, batch_id=9), section, lowered).close_us == lowered.close_us


def is_known(root: Path, log: dict[int, str | None]) -> bool:
    """Say whether the batch `x`, of version 3, is of the tables whose log has these commits."""
    folder = root / SESSIONS.changes / "_delta_log"
    folder.mkdir(parents=True)
    for version, commit_id in log.items():
        written = {} if commit_id is None else {"userMetadata": user_metadata({"commit_id": commit_id})}
        (folder / f"{version:020d}.json").write_text(json.dumps({"commitInfo": written}))
    return Visible(batch_id=7, commit_id="x", version=3).is_in(Lake(str(root), SESSIONS))


ADDED_COLUMNS = None
"""In place of a batch's commit_id: a commit that is no batch."""


@pytest.mark.parametrize("log", [{2: "w", 3: "x", 4: "y"}, {4: "y", 5: "z"}])
def test_a_batch_is_of_these_tables_if_the_log_has_its_commit_or_begins_later(
    tmp_path: Path, log: dict[int, str | None]
) -> None:
    assert is_known(tmp_path, log)


@pytest.mark.parametrize("log", [{2: "w", 3: "other", 4: "y"}, {2: "w", 3: ADDED_COLUMNS, 4: "y"}, {2: "w"}])
def test_a_batch_is_of_other_tables_if_the_log_has_another_commit_there(
    tmp_path: Path, log: dict[int, str | None]
) -> None:
    assert not is_known(tmp_path, log)
