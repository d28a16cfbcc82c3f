"""Defaults of all DAGs: retries, timeouts, pools, alerts, assets, and the params that several have."""

import json
import logging
import os
import re
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from http.client import HTTPException
from typing import Any

from airflow.sdk import Param

_QUOTED, _LEFT_OUT, _LONGEST_SENT = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\{.*\}"), "'...'", 300
_ISO_TIME = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"([T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?)?$"
)
SESSIONIZE_POOL = "sessionize"
MAINTENANCE_POOL = "maintenance"
"""One slot for maintenance, so that its jobs don't fight over the machine; `make airflow` creates both pools."""


def alert(context: Mapping[str, Any]) -> None:
    """Log what failed for good, and post it to SESSIONLAKE_ALERT_URL (a Slack-compatible webhook) where that is set.

    What stands in quotes is left out of what is posted: it may be a value from the data. The log, to which the post leads, has it.
    """
    ti = context["ti"]
    what = f"{ti.dag_id}.{ti.task_id} failed in run {ti.run_id}, try {ti.try_number}"
    reason = str(context.get("exception"))
    log = logging.getLogger(__name__)
    log.error("%s: %s\n%s", what, reason, ti.log_url)
    first = (reason.splitlines() or [""])[0][:_LONGEST_SENT]
    text = f"{what}: {_QUOTED.sub(_LEFT_OUT, first)}\n{ti.log_url}"
    url = os.environ.get("SESSIONLAKE_ALERT_URL")
    if url:
        body = json.dumps({"text": text}).encode()
        try:
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 (the operator's own URL)
            urllib.request.urlopen(request, timeout=10).close()  # noqa: S310
        except (OSError, ValueError, HTTPException) as error:
            # The URL is a secret, which the message of a malformed one quotes.
            reason = error if isinstance(error, OSError) else type(error).__name__
            log.warning("the alert could not be posted to SESSIONLAKE_ALERT_URL: %s", reason)


TASK_DEFAULTS: dict[str, Any] = {
    "owner": "sessionlake",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
    "execution_timeout": timedelta(hours=2),
    "pool": MAINTENANCE_POOL,
    "on_failure_callback": alert,
}
# A run that waits for its pool's slot is no failure: hence the time for several jobs.
DAG_DEFAULTS: dict[str, Any] = {
    "catchup": False,
    "max_active_runs": 1,
    "dagrun_timeout": timedelta(hours=8),
    "default_args": TASK_DEFAULTS,
}


def time_param(title: str, description: str) -> Param:
    """Return a param for a point in time, which may be empty.

    Airflow draws a date picker for the format but does not check it, hence the pattern.
    """
    return Param(
        None, type=["null", "string"], format="date-time", pattern=_ISO_TIME, title=title, description=description
    )


def dry_run_param() -> Param:
    """Return the param for looking only."""
    return Param(False, type="boolean", title="Dry run", description="Only say what would be done; nothing is written.")


def apply_param() -> Param:
    """Return the param for the pass of the stream at a job's end."""
    return Param(
        True,
        type="boolean",
        title="Apply",
        description="End with one pass of the stream, so that the corrections take effect. If the stream runs already, it takes them itself.",
    )


def flag_param(title: str, description: str) -> Param:
    """Return a param that is off at first."""
    return Param(False, type="boolean", title=title, description=description)


def directory_param(description: str) -> Param:
    """Return the param for the place of a backup, which must be given."""
    return Param(None, type="string", minLength=1, title="Directory", description=description)


def keys_params() -> dict[str, Param]:
    """Return the params for keys to erase."""
    return {
        "keys_file": Param(
            None,
            type=["null", "string"],
            title="File with the keys",
            description="Path on the driver's machine, a key a line, readable by its user only (mode 0600).",
        ),
        "keys": Param(
            [],
            type="array",
            items={"type": "string", "minLength": 1},
            title="Keys",
            description="Where there is no file: keys, one a line. Airflow keeps them with this run until that is deleted.",
        ),
    }


def wait_param() -> Param:
    """Return the param for the patience with a stream that runs."""
    return Param("10 minutes", type="string", title="Wait", description="How long to wait for a stream that runs.")
