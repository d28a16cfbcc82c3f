"""How keys and values become bytes, and back. Keys are ordered by their bytes, compared as unsigned."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from sessionlake.errors import StoreError

T = TypeVar("T")


class Serde(Protocol[T]):
    """Converts a value to bytes, and bytes to a value. Equal keys must give equal bytes."""

    def serialize(self, value: T) -> bytes | None:
        """Return a value's bytes; None deletes the row, as a value of None does. StoreError for a value that it can't write."""

    def deserialize(self, data: bytes) -> T:
        """Return the value of bytes that `serialize` made. StoreError for any others."""


@dataclass(frozen=True)
class Coded(Serde[T]):
    """A serde of two functions, with errors reported in a line."""

    name: str
    write: Callable[[T], bytes]
    read: Callable[[bytes], T]

    def serialize(self, value: T) -> bytes:
        """Return a value's bytes."""
        try:
            return self.write(value)
        except Exception as error:
            raise StoreError(f"serde {self.name}: {value!r} can't be written ({error}); use another serde") from error

    def deserialize(self, data: bytes) -> T:
        """Return the value of bytes."""
        try:
            return self.read(data)
        except Exception as error:
            raise StoreError(
                f"serde {self.name}: {data[:40]!r} can't be read ({error}); open the store with the serde that wrote it"
            ) from error


class Lazy(Generic[T]):
    """A value that is deserialised at the first `get`, and only once.

    >>> lazy = Lazy(b"12", int)
    >>> lazy.data, lazy.get()
    (b'12', 12)
    """

    __slots__ = ("_read", "_value", "data")

    def __init__(self, data: bytes, read: Callable[[bytes], T]) -> None:
        self.data = data
        """The value's bytes, as stored."""
        self._read: Callable[[bytes], T] | None = read
        self._value: Any = None

    def get(self) -> T:
        """Return the value."""
        read = self._read
        if read is not None:
            self._value = read(self.data)
            self._read = None
        value: T = self._value
        return value


@dataclass(frozen=True)
class LazySerde(Serde[Lazy[T] | T]):
    """Values as `Lazy`, of another serde's; plain values are taken too."""

    inner: Serde[T]

    def serialize(self, value: Lazy[T] | T) -> bytes | None:
        """Return a value's bytes; a lazy value's as they are."""
        return value.data if isinstance(value, Lazy) else self.inner.serialize(value)

    def deserialize(self, data: bytes) -> Lazy[T]:
        """Return the bytes, to be deserialised later."""
        return Lazy(data, self.inner.deserialize)


class Values(Generic[T]):
    """A store's values: a serde, and the number of its requests for a value."""

    def __init__(self, serde: Serde[T]) -> None:
        self.serialize = serde.serialize
        self._serde: Serde[Any] = serde.inner if isinstance(serde, LazySerde) else serde
        # Without the layer that reports errors: after an error this is called again, below.
        self._read = self._serde.read if isinstance(self._serde, Coded) else self._serde.deserialize
        self.read: Callable[[bytes], T]
        """Returns the value of bytes."""
        lazy: Any = self._lazy
        self.read = lazy if isinstance(serde, LazySerde) else self._counted
        self.deserialised = 0
        """Values deserialised; with a lazy serde the requested values."""

    def _counted(self, data: bytes) -> Any:
        self.deserialised += 1
        try:
            return self._read(data)
        except Exception:  # noqa: BLE001 - the serde reports it in one line
            return self._serde.deserialize(data)

    def _lazy(self, data: bytes) -> Lazy[Any]:
        return Lazy(data, self._counted)


class Serdes:
    """The serdes that there are; any object with `serialize` and `deserialize` will do as well."""

    @staticmethod
    def string() -> Serde[str]:
        """Text as UTF-8, in the order of its characters' numbers."""
        return Coded("string", lambda text: text.encode(), bytes.decode)

    @staticmethod
    def bytes() -> Serde[bytes]:
        """Bytes as they are."""
        return _Bytes()

    @staticmethod
    def int64() -> Serde[int]:
        """Whole numbers of 8 bytes, big endian two's complement as Kafka's: negative ones come AFTER the positive."""
        return _number("int64", ">q")

    @staticmethod
    def int32() -> Serde[int]:
        """Whole numbers of 4 bytes, big endian two's complement as Kafka's: negative ones come AFTER the positive."""
        return _number("int32", ">i")

    @staticmethod
    def json() -> Serde[Any]:
        """A serde of JSON values, without NaN. Equal dicts give equal bytes, so it can serve for keys, but their order means nothing."""
        return Coded(
            "json",
            lambda value: json.dumps(
                value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
            ).encode(),
            json.loads,
        )

    @staticmethod
    def arrow(schema: pa.Schema) -> Serde[dict[str, Any]]:
        """Dicts of a schema's columns as an Arrow row, whose types stay exact; a column that is left out is null."""
        return Coded(
            "arrow",
            lambda row: pa.RecordBatch.from_pylist([row], schema).serialize().to_pybytes(),
            lambda data: pa.ipc.read_record_batch(pa.py_buffer(data), schema).to_pylist()[0],
        )

    @staticmethod
    def lazy(serde: Serde[T]) -> Serde[Lazy[T] | T]:
        """A serde's values as `Lazy`: rows that are only counted, or chosen by key, are never deserialised."""
        return LazySerde(serde)


def _number(name: str, form: str) -> Serde[int]:
    layout = Struct(form)
    return Coded(name, layout.pack, lambda data: layout.unpack(data)[0])


class _Bytes(Serde[bytes]):
    """No `Coded`, whose calls would cost more than all else that is done for a row."""

    def serialize(self, value: bytes) -> bytes:
        if type(value) is not bytes:
            raise StoreError(f"serde bytes: {value!r} can't be written (not bytes); use another serde")
        return value

    def deserialize(self, data: bytes) -> bytes:
        return data
