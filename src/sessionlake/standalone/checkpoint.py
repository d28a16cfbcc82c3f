"""The checkpoint of a flush, next to the store: the state that a pipeline has in commits, as JSON, under one name."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine.shard import COMMIT
from sessionlake.errors import ConfigError, CorruptionError, StoreError, StoreHeldError
from sessionlake.store.buffered import BufferedSegments
from sessionlake.stream.unique.events import unique_secret

NAME = "standalone"
"""The metadata entry of the database."""
Positions = dict[str, dict[str, int]]
"""By input and source partition, a number as text, since JSON has no other names."""


@dataclass(frozen=True)
class Checkpoint:
    """All values that last from flush to flush, besides the stores."""

    definition: Mapping[str, Any]
    """The definition for which the directory was created; JSON values."""
    types: Mapping[str, str] = field(default_factory=dict)
    """By input the columns to read with types, as a serialized Arrow schema; none before the first message."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The operator's state after the last batch."""
    batches: int = 0
    clock_us: int | None = None
    """The latest clock: it never goes back."""
    positions: Positions = field(default_factory=dict)
    """The last position named by the caller."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """By partition how many messages were kept."""
    unique_secret: str = ""
    """The secret of the identities' hashes; empty in directories created without a secret."""

    def to_bytes(self) -> bytes:
        """Return it as it is written."""
        return json.dumps(asdict(self)).encode()

    def known_types(self) -> dict[str, dict[str, pa.DataType]]:
        """Return by input the columns to read, with types."""
        found = {}
        for name, text in self.types.items():
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
            found[name] = dict(zip(schema.names, schema.types, strict=True))
        return found

    def with_types(self, name: str, types: Mapping[str, pa.DataType]) -> "Checkpoint":
        """Return it with the types of an input."""
        text = base64.b64encode(pa.schema(list(types.items())).serialize().to_pybytes()).decode()
        return replace(self, types={**self.types, name: text})


def opened_database(path: Path) -> BufferedSegments:
    """Open a directory's database; StoreError if another holds it, or if it is damaged: there is no copy but the caller's."""
    try:
        return BufferedSegments(path)
    except StoreHeldError as error:
        raise StoreHeldError(
            f"directory: {str(path)!r} is open, here or in another process; close that one first"
        ) from error
    except CorruptionError as error:
        raise StoreError(
            f"directory: {str(path)!r} can't be read ({error}); put a copy back, or add all messages again to a new directory"
        ) from error


def read_checkpoint(
    db: BufferedSegments, path: Path, define: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Checkpoint:
    """Return the checkpoint of the last flush; ConfigError if the directory was created for another definition.

    `define` returns the definition, given the one that the directory was made for, which is empty if there is none.
    """
    found = db.meta(NAME)
    if found is None:
        if db.meta(COMMIT) is not None:
            raise ConfigError(f"directory: {str(path)!r} is a shard of a pipeline; choose another directory")
        return Checkpoint(define({}), unique_secret=unique_secret(None))
    saved = Checkpoint(**json.loads(found))
    wanted = json.loads(json.dumps(define(saved.definition)))
    for name in (*wanted, *saved.definition):
        old, new = saved.definition.get(name), wanted.get(name)
        if old != new:
            raise ConfigError(
                f"directory: {str(path)!r} was made with {name} = {old!r}, not {new!r}; open it with that, or choose another directory"
            )
    return saved
