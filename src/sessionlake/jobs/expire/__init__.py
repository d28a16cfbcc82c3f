"""Pattern 7 expiry: tombstones for the sessions that a rule names, sent by a job apart from the stream."""

from sessionlake.jobs.expire.job import Pace, expire

__all__ = ["Pace", "expire"]
