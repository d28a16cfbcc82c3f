"""The base class of all sections, and the types of keys that several sections have."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

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


DURATION = AfterValidator(_duration)
Duration = Annotated[str, DURATION]
RETENTION = Field(validation_alias=AliasChoices("retention", "retention_time"))
"""The field of a key `retention` whose earlier name is `retention_time` (`OperatorSection.OLD_NAMES`)."""
Columns = Annotated[str | list[str], BeforeValidator(_names)]
"""One column, or several."""


class Section(BaseModel):
    """A table of the config file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
