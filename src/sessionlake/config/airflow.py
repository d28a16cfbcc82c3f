"""The section [airflow]: when Airflow runs the pipeline and its jobs."""

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from sessionlake.config.fields import Section

OFF = "off"
_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly")
_FIELD = r"[0-9A-Za-z*/,#-]+"
_CRON = re.compile(rf"{_FIELD}( {_FIELD}){{4}}")


class AirflowSection(Section):
    """What the DAGs of the pipeline do; they read it themselves, without this package (`dags/sessionlake_airflow`)."""

    run: Literal["micro", "stream", "off"] = "micro"
    """How the pipeline runs: in small runs by a schedule, as a long task, or not by Airflow."""
    pool: str = Field(default="sessionize", min_length=1)
    """The pool of Airflow in which the pipeline runs."""
    maintenance_pool: str = Field(default="maintenance", min_length=1)
    """The pool of its other jobs."""
    schedules: dict[str, str] = Field(default={})
    """When jobs run, by the name of the job: cron of five fields in UTC, or "off". "run" is the pipeline itself, with run = "micro"."""

    @field_validator("schedules")
    @classmethod
    def _crons(cls, schedules: Mapping[str, str]) -> Mapping[str, str]:
        for job, text in schedules.items():
            if text != OFF and text not in _PRESETS and not _CRON.fullmatch(text):
                raise ValueError(
                    f"{job} = {text!r} is no schedule; write five fields of cron, as in '0 2 * * *', one of {', '.join(_PRESETS)}, or 'off'"
                )
        return schedules
