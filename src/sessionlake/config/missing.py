"""The stand-in for a section that most pipelines have, and this one does not."""

from typing import Any

from sessionlake.errors import ConfigError


class MissingSection:
    """Stands for a section; to read a key of it is a ConfigError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, key: str) -> Any:
        # Python itself reads such names of objects, for example to copy one: they are no keys.
        if key.startswith("_"):
            raise AttributeError(key)
        raise ConfigError(
            f"{self._name}: this is for pipelines with one [{self._name}], and this one has several inputs, each with its own; name another config"
        )
