"""The base class of all sections, and the types of keys that several sections have."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from sessionlake.column_names import column_name, key_name, titled
from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError


def _duration(text: str) -> str:
    try:
        parse_duration(text)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("duration: ")) from error
    return text


def _names(given: object) -> object:
    """Return a list of one column as the column; ValueError for an empty list, or a column twice."""
    if not isinstance(given, list):
        return given
    if not given:
        raise ValueError("is an empty list; name a column, or several")
    wrong = next((name for name in given if not isinstance(name, str)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is not a text; write the names of columns in quotes, as in ['tenant', 'user_id']")
    twice = next((name for name in given if [other.lower() for other in given].count(name.lower()) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is there twice, perhaps in upper and lower case; name it once")
    return given[0] if len(given) == 1 else given


def as_columns(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return one column, several or none as a tuple.

    >>> as_columns("user"), as_columns(["tenant", "user"]), as_columns(None)
    (('user',), ('tenant', 'user'), ())
    """
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def _with_titles(names: list[str]) -> list[str]:
    titled(names)
    return names


DURATION = AfterValidator(_duration)
Duration = Annotated[str, DURATION]
RETENTION = Field(validation_alias=AliasChoices("retention", "retention_time"))
"""The field of a key `retention` whose earlier name is `retention_time` (`OperatorSection.OLD_NAMES`)."""
Texts = Annotated[str | list[str], BeforeValidator(_names)]
"""One text, or several different ones."""
ColumnName = Annotated[str, AfterValidator(column_name)]
"""A column of the source, or a field in one, by its path."""
KeyName = Annotated[str, AfterValidator(key_name)]
"""The same, or an element of a list or a map."""
ResultColumns = Annotated[list[ColumnName], AfterValidator(_with_titles)]
"""Columns of the source that results have, under their titles, which differ."""
Columns = Annotated[KeyName | list[KeyName], BeforeValidator(_names)]
"""One column, field or element, or several."""


class Section(BaseModel):
    """A table of the config file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
