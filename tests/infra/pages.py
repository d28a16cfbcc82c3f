"""The pages of the documentation."""

from tests.infra.infra_files import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
