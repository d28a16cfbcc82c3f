"""CPU time of a process and all it started, in a module of its own: older commits' environments may lack psutil."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu_s(root: int | None = None) -> float:
    """Return the CPU seconds of a process, by default this one, and of all it started, those that ended included."""
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended; its parent has its time
                continue
    found = {root or os.getpid()}
    more = set(found)
    while more:
        more = {pid for pid, fields in stats.items() if int(fields[1]) in more}
        found |= more
    return sum(sum(map(int, stats[pid][11:15])) for pid in found if pid in stats) / _TICKS
