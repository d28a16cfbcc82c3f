"""How far a sink is that can't hold its own position: numbered files, and the last one counts. Light: `status` reads them without Spark."""

from sessionlake.warehouse.delta_log import LogFiles


def newest_record(files: LogFiles, folder: str) -> str | None:
    """Return the text of the newest file; None if there is none."""
    while True:
        numbers = recorded(files, folder)
        if not numbers:
            return None
        text = files.read_text(f"{folder}/{numbers[-1]}")
        if text is not None:
            return text
        # Another process has gone on since the files were listed.


def recorded(files: LogFiles, folder: str, suffix: str = "") -> list[int]:
    """Return the numbers of the files in a folder whose names have a suffix, in order."""
    names = (name.removesuffix(suffix) for name in files.names(folder) if name.endswith(suffix))
    return sorted(int(name) for name in names if name.isdigit())
