"""The command that fetches jars: `python -m sessionlake.jars`, under the name by which people call it."""

from sessionlake.jars.__main__ import jars_command

__all__ = ["jars_command"]
