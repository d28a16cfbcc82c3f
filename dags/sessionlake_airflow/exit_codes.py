"""What the exit codes of sessionlake's commands mean (docs/commands.md). A DAG can't import them: a test holds the two equal."""

FAILED = 1
"""A failure that is not sessionlake's."""
USER = 2
"""Arguments, config, source or pipeline are to be mended."""
NOT_NEEDED = 3
"""By the config there was nothing to do."""
BUSY = 4
"""Another process does this on the pipeline already."""
FENCED = 5
"""Another driver or run took over."""
NO_BATCHES = 6
"""The pipeline has never run."""
TRY_AGAIN = 7
"""Something was in the way that passes by itself."""
FOUND = 8
"""A job's verdict is no."""

EXPLAINED = (FAILED, USER, NOT_NEEDED, BUSY, FENCED, NO_BATCHES, TRY_AGAIN, FOUND)
"""Codes before which the command line has said in one line what is wrong; not those of a signal."""
