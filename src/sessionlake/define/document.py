"""The content of a config's file, made of what a program gives: the file would be read as this is."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from typing import Any

from sessionlake.config.durations import spoken_duration
from sessionlake.config.sections import PipelineSection
from sessionlake.define.sections import Aggregate, Operator, Section
from sessionlake.errors import ConfigError

_SECOND_US = 1_000_000


def document_of(name: str, operator: Operator, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config's content: `given` has sections, and keys of [pipeline]; what is None is left out.

    ConfigError for a value that no file can have.
    """
    if not isinstance(operator, Operator):
        raise ConfigError(f"operator: is a {type(operator).__name__}; write for example Sessions(gap='1 hour')")
    if operator.AT in given:
        raise ConfigError(f"{operator.AT}: is the section of the operator, which is given already; remove it")
    pipeline = {"name": name, **{key: value for key, value in given.items() if key in PipelineSection.model_fields}}
    inputs = {key: given[key] for key in ("source", "event") if key in given}
    rest = {key: value for key, value in given.items() if key not in {*pipeline, *inputs}}
    sections = {"pipeline": pipeline, **inputs, operator.AT: operator, **rest}
    return {key: _value(value, key) for key, value in sections.items() if value is not None}


def _value(value: Any, at: str) -> Any:
    """Return a value as a file's; `at` is its place."""
    if isinstance(value, Section):
        value = value.values
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _value(inner, f"{at}.{key}") for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_value(inner, at) for inner in value]
    value = _import_path(value, at) if isinstance(value, type) else _plain(value)
    if not isinstance(value, str | bool | int | float):
        kind = type(value).__name__
        raise ConfigError(f"{at}: is a {kind}; write a text, a number, true or false, a list, a section or a timedelta")
    return value


def _plain(value: Any) -> Any:
    """Return the text of a call or of a duration; any other value as it is."""
    if isinstance(value, Aggregate):
        return str(value)
    if isinstance(value, timedelta):
        return spoken_duration((value.days * 86_400 + value.seconds) * _SECOND_US + value.microseconds)
    return value


def _import_path(value: type, at: str) -> str:
    if value.__module__ == "__main__" or "." in value.__qualname__:
        raise ConfigError(
            f"{at}: {value.__qualname__!r} can't be imported by other processes; move the class to the top of a module"
        )
    return f"{value.__module__}:{value.__qualname__}"
