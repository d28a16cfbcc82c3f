"""What the DAGs know of the operators: `python -m tests.airflow.operators_table` writes it again after a change of the registries."""

import json
from pathlib import Path
from typing import Any

from sessionlake.config.operators import OPERATORS, named
from sessionlake.jobs.registry import JOBS

FILE = Path(__file__).parents[2] / "dags" / "sessionlake_airflow" / "operators.json"


def table() -> list[dict[str, Any]]:
    """Return, for each operator, its section, the choice in it, its table, and the jobs of which it lacks nothing."""
    first = {entry.section: entry for entry in reversed(OPERATORS.values())}
    return [
        {
            "section": entry.section,
            "choice": list(entry.choice),
            "default": first[entry.section].choice[1],
            "table": named(entry.changelog).snapshot,
            "jobs": [job.name for job in JOBS if job.dag and job.needs not in entry.lacks],
        }
        for entry in OPERATORS.values()
    ]


def text() -> str:
    lines = ",\n".join(json.dumps(one) for one in table())
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    FILE.write_text(text())
