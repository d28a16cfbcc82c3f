"""Files that belong to sessionlake but are no modules of it: in an installed package they lie inside it, in a checkout at its root."""

from pathlib import Path

from sessionlake.errors import SessionlakeError

SHIPPED = {
    "dags": "sessionlake_airflow/job.py",
    "pipelines": "command.py",
    "expectations": "sessions.json",
}
"""For each folder one of its files, which distinguishes it from another folder of the same name."""


def shipped_directory(name: str) -> Path:
    """Return the place of one of SHIPPED."""
    places = (parent / name for parent in Path(__file__).resolve().parents)
    found = next((place for place in places if (place / SHIPPED[name]).is_file()), None)
    if found is None:
        raise SessionlakeError(f"{name}: is not in this installation of sessionlake; install it again")
    return found
