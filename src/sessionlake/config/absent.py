"""What stands for a section of the config that a pipeline has none of, though most have it."""

from typing import Any

from sessionlake.errors import ConfigError


class Absent:
    """Stands for a section; to read a key of it is a ConfigError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, key: str) -> Any:
        # What Python itself asks of objects, as to copy one, is no key.
        if key.startswith("_"):
            raise AttributeError(key)
        raise ConfigError(
            f"join: this is for pipelines with one [{self._name}], and a join has one on each side; name another config"
        )
