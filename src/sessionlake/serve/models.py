"""What may be asked of the paths of the query server, and what their answers look like: the models of /openapi.json."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

WAIT_MS = 5000
MAX_KEYS = 1000
Time = str | int | None


class Anything(BaseModel):
    """What may be asked of a path that looks at nothing of it."""


class Asked(BaseModel):
    """What may be asked of any path that has rows."""

    model_config = ConfigDict(extra="forbid")

    times: Literal["iso", "us"] = Field("iso", description="Times as ISO 8601, or as whole microseconds since 1970")
    min_batch_id: int | None = Field(
        None, ge=0, description="The answer is of this batch or a later one, else it is refused by 412"
    )
    wait_ms: int = Field(0, ge=0, le=WAIT_MS, description="How long to wait for min_batch_id")


class Limited(Asked):
    """What may be asked of a list."""

    limit: int | None = Field(None, ge=1, description="Rows of a page, up to serve.max_rows; 100 where none is given")


REDIRECT = Field(
    False, description="307 to the server of the key's shard, where that is another one's, in place of asking it"
)


class Listed(Limited):
    """A list of rows: of a key, or of a range of keys."""

    key: str | None = None
    key_from: str | None = Field(
        None, description="First key of a range, inclusive; keys are ordered by their UTF-8 bytes"
    )
    key_to: str | None = Field(None, description="Last key of a range, inclusive")
    prefix: str | None = Field(None, description="What keys begin with")
    cursor: str | None = Field(None, description="Where to go on: the cursor of the page before")
    cold: bool = Field(False, description="From the tables, with what stores have no more")
    redirect: bool = REDIRECT


class Keys(Limited):
    """Rows of keys that are named."""

    keys: list[str] = Field(
        min_length=1, max_length=MAX_KEYS, description="Rows come by key; none for a key that has none"
    )
    cursor: str | None = Field(None, description="Where to go on: the cursor of the page before")
    cold: bool = Field(False, description="From the tables, with what stores have no more")


class TimedKeys(Keys):
    """Rows of keys that are named, and that have times."""

    from_: Time = Field(None, alias="from", description="Rows that end there or later; ISO time, or microseconds")
    to: Time = Field(None, description="Rows that start there or earlier")
    include: str | None = Field(None, description="open, quarantined: what sessions_live leaves out")


class Timed(Listed):
    """A list of rows that have times."""

    from_: str | None = Field(None, alias="from", description="Rows that end there or later; ISO time, or microseconds")
    to: str | None = Field(None, description="Rows that start there or earlier")
    order: Literal["asc", "desc"] = Field("asc", description="Oldest or newest first; desc of one key only")
    include: str | None = Field(None, description="open, quarantined: what sessions_live leaves out")


class OneSession(Asked):
    """One session."""

    key: str
    start: str = Field(description="When it starts: ISO time, or microseconds")
    include: str | None = None
    redirect: bool = REDIRECT


class OneRow(Asked):
    """One row of a keyed table."""

    key: str
    redirect: bool = REDIRECT


class OneKey(Asked):
    """A key."""

    key: str


class After(Limited):
    """Batches."""

    after: int = Field(-1, description="Only later batches")


class Envelope(BaseModel):
    """What every answer says, beside the rows."""

    model_config = ConfigDict(extra="allow")

    batch_id: int
    watermark: Time
    complete_from: Time = Field(
        description="Rows that ended earlier may lie in the tables only (`cold`); null where all are here"
    )
    served_by: Literal["store", "delta"]
    cursor: str | None = None


class Metadata(BaseModel):
    """Where a key's rows are kept."""

    batch_id: int
    key: str
    shard: int
    host: str | None = Field(description="Where the shard ran last; null where it never did")
    local: bool = Field(description="Whether its store is on this server's host, as of the batch")
    missing: str | None = Field(description="Why it is not")
    url: str | None = Field(description="The server of that host (serve.peers); null where none is configured")


class Sessions(Envelope):
    """Sessions."""

    sessions: list[dict[str, Any]]


class Rows(Envelope):
    """Rows of a keyed table."""

    rows: list[dict[str, Any]]


class Windows(Envelope):
    """Windows."""

    windows: list[dict[str, Any]]


class Joins(Envelope):
    """Pairs of a join."""

    joins: list[dict[str, Any]]


class Failure(BaseModel):
    """Why a request is not answered."""

    error: str = Field(description="One line: what, which value, what to do")


MODELS: dict[str, type[Envelope]] = {"sessions": Sessions, "rows": Rows, "windows": Windows, "joins": Joins}
