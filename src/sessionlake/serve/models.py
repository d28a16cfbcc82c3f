"""The parameters of the query server's paths, and the form of their answers: the models of /openapi.json."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from sessionlake.config.operators import RowNames

WAIT_MS = 5000
MAX_KEYS = 1000
Time = str | int | None


class Anything(BaseModel):
    """The parameters of a path that reads none."""


class BatchRequest(BaseModel):
    """The parameters of any path that has rows."""

    model_config = ConfigDict(extra="forbid")

    times: Literal["iso", "us"] = Field("iso", description="Times as ISO 8601, or as whole microseconds since 1970")
    min_batch_id: int | None = Field(
        None, ge=0, description="The answer is of this batch or a later one, else it is refused by 412"
    )
    wait_ms: int = Field(0, ge=0, le=WAIT_MS, description="How long to wait for min_batch_id")


class Limited(BatchRequest):
    """The parameters of a list."""

    limit: int | None = Field(None, ge=1, description="Rows of a page, up to serve.max_rows; by default 100")


REDIRECT = Field(
    False, description="If another server has the key's shard: answer 307 with its address, instead of asking it"
)


class Listed(Limited):
    """A list of rows: of a key, or of a range of keys."""

    key: str | None = None
    key_from: str | None = Field(
        None, description="First key of a range, inclusive; keys are ordered by their UTF-8 bytes"
    )
    key_to: str | None = Field(None, description="Last key of a range, inclusive")
    prefix: str | None = Field(None, description="First characters of the keys")
    cursor: str | None = Field(None, description="The cursor of the page before, to go on after it")
    cold: bool = Field(False, description="Read the tables, which also have rows that have left the stores")
    redirect: bool = REDIRECT


class Keys(Limited):
    """Rows of keys that are named."""

    keys: list[str | dict[str, str]] = Field(
        min_length=1,
        max_length=MAX_KEYS,
        description="Rows come by key; none for a key that has none. A key of several columns may be an object of them",
    )
    cursor: str | None = Field(None, description="The cursor of the page before, to go on after it")
    cold: bool = Field(False, description="Read the tables, which also have rows that have left the stores")


class TimedKeys(Keys):
    """Rows of keys that are named, and that have times."""

    from_: Time = Field(None, alias="from", description="Rows that end there or later; ISO time, or microseconds")
    to: Time = Field(None, description="Rows that start there or earlier")
    include: str | None = Field(None, description="open, quarantined: rows that live views leave out")


class Timed(Listed):
    """A list of rows that have times."""

    from_: str | None = Field(None, alias="from", description="Rows that end there or later; ISO time, or microseconds")
    to: str | None = Field(None, description="Rows that start there or earlier")
    order: Literal["asc", "desc"] = Field("asc", description="Oldest or newest first; desc of one key only")
    include: str | None = Field(None, description="open, quarantined: rows that live views leave out")


class OneRow(BatchRequest):
    """The one row of a key."""

    key: str
    redirect: bool = REDIRECT


class StartedRow(OneRow):
    """One of a key's rows."""

    start: str = Field(description="When it starts: ISO time, or microseconds")
    include: str | None = None


class OneKey(BatchRequest):
    """A key."""

    key: str


class After(Limited):
    """Batches."""

    after: int = Field(-1, description="Only later batches")
    before: int | None = Field(None, description="Only earlier batches, the last ones of them")


class Letters(Limited):
    """Dead letters."""

    reason: str | None = Field(None, description="Those of this reason alone, as /v1/dead_letter_reasons has it")
    cursor: str | None = Field(None, description="The cursor of the page before, to go on after it")


class Envelope(BaseModel):
    """The fields of every answer besides the rows."""

    model_config = ConfigDict(extra="allow")

    batch_id: int
    watermark: Time
    complete_from: Time = Field(
        description="Rows that ended earlier may be in the tables only (`cold`); null if all are here"
    )
    served_by: Literal["store", "delta"]
    cursor: str | None = None


class Metadata(BaseModel):
    """The host that has a key's rows."""

    batch_id: int
    key: str
    shard: int
    host: str | None = Field(description="The host on which the shard ran last; null if it never did")
    local: bool = Field(description="Whether its store is on this server's host, as of the batch")
    missing: str | None = Field(description="Why it is not")
    url: str | None = Field(description="The server of that host (serve.peers); null if none is configured")


class Failure(BaseModel):
    """Why a request is not answered."""

    error: str = Field(description="One line: what, which value, what to do")


def list_model(rows: RowNames) -> type[Envelope]:
    """Return the model of a list of an operator's rows."""
    fields: dict[str, Any] = {rows.list: list[dict[str, Any]]}
    return create_model(rows.list.capitalize(), __base__=Envelope, __doc__=f"{rows.many.capitalize()}.", **fields)
