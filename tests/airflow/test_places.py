"""A run names a place directly below one root: neither a path, nor dots, nor a scheme, nor a link lead elsewhere."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "dags"))
from sessionlake_airflow.places import BACKUPS, WAREHOUSES, placed

ELSEWHERE = [
    "webhdfs://127.0.0.1:18990/loot", "/loot", "../loot", "a/b", "..", ".", "", "a/../../b", "-x", "{r}", "{r}/", "{r}/../x", "{r}/a/b",
    "a\nb", "a\n", "{r}x/a", "s3:loot", "~root", "a b",
]  # fmt: skip


@pytest.fixture(params=["", "s3://bucket/kept", "/srv/kept/"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the root of backups of a project in `tmp_path`."""
    monkeypatch.setenv("SESSIONLAKE_CONFIGS", str(tmp_path))
    monkeypatch.setenv("SESSIONLAKE_BACKUPS", request.param)
    return str(request.param).rstrip("/") or str(tmp_path / "backups")


def test_a_backup_of_the_root(root: str, tmp_path: Path) -> None:
    for named in ("monday-1", f"{root}/monday-1"):
        assert placed(BACKUPS, named, str(tmp_path / "clicks.toml")) == f"{root}/monday-1"


@pytest.mark.parametrize("named", ELSEWHERE)
def test_a_backup_elsewhere_is_refused_in_one_line(root: str, tmp_path: Path, named: str) -> None:
    with pytest.raises(
        ValueError, match=r"is no place directly in .*; write a name there, .* may set SESSIONLAKE_BACKUPS"
    ) as caught:
        placed(BACKUPS, named.format(r=root), str(tmp_path / "clicks.toml"))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("own", "project", "root"),
    [
        ("warehouse = 's3://lake/clicks'", "", "s3://lake"),
        ("warehouse = 'big/lake/clicks'", "warehouse = 'other'", "big/lake"),
        ("warehouse = 'clicks'", "", ""),
        ("", "warehouse = 's3://lake/'", "s3://lake"),
        ("", "", ""),
        ("x = [[[", "", ""),
    ],
)
def test_a_new_warehouse_lies_beside_the_one_of_now(tmp_path: Path, own: str, project: str, root: str) -> None:
    (tmp_path / "clicks.toml").write_text(f"[pipeline]\n{own}\n")
    (tmp_path / "project.toml").write_text(f"[pipeline]\n{project}\n")
    config = str(tmp_path / "clicks.toml")
    assert placed(WAREHOUSES, "clicks-2", config) == (f"{root}/clicks-2" if root else "clicks-2")
    for named in ELSEWHERE:
        with pytest.raises(ValueError, match=r"warehouse .* is no place directly in"):
            placed(WAREHOUSES, named.format(r=root or "/"), config)


def test_a_link_below_the_root_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONLAKE_CONFIGS", str(tmp_path))
    monkeypatch.delenv("SESSIONLAKE_BACKUPS", raising=False)
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "up").symlink_to("/")
    (tmp_path / "near").symlink_to("/")
    for param, named in ((BACKUPS, "up"), (WAREHOUSES, "near")):
        with pytest.raises(ValueError, match="is no place directly in"):
            placed(param, named, str(tmp_path / "clicks.toml"))
