"""Users' classes, named by import path: loading, storage of states, and error reports.

`folded.py` has the classes that merge aggregates (KIP-94), `full.py` the classes that evaluate all rows.

A user's code may raise any error. If it raises at an event, that event becomes a dead letter. If it raises in a merge, no
single row is to blame, and the batch stops. A MemoryError never counts as the user's error.
"""

import base64
import json
import traceback
import zlib
from abc import abstractmethod
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.scalars import BYTES
from sessionlake.errors import AggregateError, BadEventsError, ConfigError, first_line
from sessionlake.user_code import NOT_THEIRS, load

_VALUE_TYPES = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


def load_user(name: str, path: str, directory: str | None) -> Any:
    """Return an object of an aggregate's class, named by import path; ConfigError if it can't be made."""
    try:
        return load(path, directory)()
    except NOT_THEIRS:
        raise
    except BaseException as error:
        raise ConfigError(
            f"aggregates.{name}: {path!r} can't be loaded ({error}); write 'package.module:Class', of an installed package or one in pipeline.code"
        ) from error


class Custom(Aggregate):
    """An aggregate by a user's class, whatever methods that has."""

    as_json: Callable[[object], Any] | None = None
    """Makes JSON of a value without a form there, if the class stores rows; the user's class must do so for an aggregate."""

    def __init__(self, name: str, path: str, directory: str | None, user: Any) -> None:
        self.name, self.path, self.directory, self.user = name, path, directory, user
        columns = getattr(user, "columns", ())
        self.inputs = (columns,) if isinstance(columns, str) else tuple(columns)
        declared = getattr(user, "value_type", "string")
        if declared not in _VALUE_TYPES:
            known = ", ".join(_VALUE_TYPES)
            raise ConfigError(f"aggregates.{name}: {path}.value_type is {declared!r}; write one of {known}")
        self.declared, self.value_type = declared, _VALUE_TYPES[declared]

    def __getstate__(self) -> dict[str, Any]:
        # A worker imports the class again: instances of users' classes need not be picklable.
        return {k: v for k, v in self.__dict__.items() if k != "user"}

    @cached_property
    def user(self) -> Any:
        """The user's object, one a process."""
        return load_user(self.name, self.path, self.directory)

    @abstractmethod
    def _lifted(self, keys: list[str], rows: list[dict[str, Any]]) -> list[bytes | None]:
        """Return the user's aggregate of each event, in stored form."""

    def _dump(self, aggregate: Any) -> bytes:
        """Return the aggregate as it is stored. Keys of JSON are sorted: equal aggregates must have equal bytes."""
        custom: Callable[[Any], bytes] | None = getattr(self.user, "serialize", None)
        return custom(aggregate) if custom else json.dumps(aggregate, sort_keys=True, default=self.as_json).encode()

    def _load(self, data: bytes) -> Any:
        custom: Callable[[bytes], Any] | None = getattr(self.user, "deserialize", None)
        return custom(data) if custom else json.loads(data)

    def lift(self, events: Events) -> States:
        """Lift each event; BadEventsError names all events at which the user's class raises."""
        names = list(self.inputs or events.columns)
        columns = pa.table({name: events.columns[name] for name in names})
        try:
            return [self._stored(events.keys, columns)]
        except NOT_THEIRS:
            raise
        except BaseException:  # noqa: BLE001 (a user's code raises what it likes)
            return [pa.array(self._one_by_one(events.keys, columns), BYTES)]

    def _stored(self, keys: pa.Array, columns: pa.Table) -> pa.Array:
        rows = columns.to_pylist() if columns.num_columns else [{} for _ in range(len(keys))]
        return pa.array(self._lifted(keys.to_pylist(), rows), BYTES)

    def _one_by_one(self, keys: pa.Array, columns: pa.Table) -> list[bytes | None]:
        """Lift event by event, once all at once has raised: to find out which raise."""
        states: list[bytes | None] = []
        reasons: dict[int, str] = {}
        for row in range(len(keys)):
            try:
                states += self._stored(keys[row : row + 1], columns.slice(row, 1)).to_pylist()
            except NOT_THEIRS:
                raise
            except BaseException as error:  # noqa: BLE001 (as in lift)
                reasons[row] = f"aggregate {self.name} raised {_described(error)}"
        if reasons:
            raise BadEventsError(
                f"aggregates.{self.name}: {self.path}: {next(iter(reasons.values()))}; correct the class",
                reasons,
            )
        return states

    def _raised(self, method: str, error: BaseException, key: str | None = None) -> AggregateError:
        """Return the error for a method that raised if no event is to blame. It has only the key's checksum."""
        of = "" if key is None else f", for a key whose CRC-32 is {zlib.crc32(key.encode()):08x}"
        return AggregateError(
            f"aggregates.{self.name}: {self.path}.{method} raised {_described(error)} at {_place(error)}{of}; "
            "correct the class and start again: the batch is not committed"
        )

    def _column(self, method: str, values: list[Any]) -> pa.Array:
        """Return a method's results as the users' column; ConfigError for results of another type."""
        try:
            if self.declared == "string":
                values = [v if isinstance(v, str) or v is None else json.dumps(v, sort_keys=True) for v in values]
        except (TypeError, ValueError, RecursionError) as error:
            raise self._raised(method, error) from error
        try:
            return pa.array(values, self.value_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(
                f"aggregates.{self.name}: {self.path}.{method} does not fit its value_type {self.declared} ({error}); "
                "return that type or None, or declare another"
            ) from error


def _place(error: BaseException) -> str:
    """Return the file and line at which an error was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _described(error: BaseException) -> str:
    """Return an error's text for a dead letter's reason: one line, at most 200 characters.

    >>> _described(ValueError("no price"))
    'ValueError: no price'
    """
    return f"{type(error).__name__}: {first_line(error)}"[:200]


def json_of_value(value: object) -> str:
    """Return the text of a value without a form in JSON; TypeError if its type has no text.

    >>> json_of_value(date(2026, 1, 31)), json_of_value(Decimal("1.50")), json_of_value(b"ab")
    ('2026-01-31', '1.50', 'YWI=')
    """
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON; add serialize and deserialize")
