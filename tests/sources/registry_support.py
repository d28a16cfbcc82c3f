"""A schema registry for tests: the part of Confluent's interface that readers use, in a thread."""

import base64
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro

Schema = Mapping[str, Any] | str


@dataclass
class Registry:
    """Schemas by id, and the ids of a subject's versions."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    login: tuple[str, str] | None = None
    """User and password, without which it refuses."""
    status: int | None = None
    """The status of every answer, if it is to fail."""
    deleted: set[str] = field(default_factory=set)
    """Subjects that are deleted, but for schemas that refer to them."""
    serialized: dict[int, str] = field(default_factory=dict)
    """Files of Protobuf by id, for those who ask for them serialized."""
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def add(
        self, subject: str, schema: Schema, references: Sequence[Mapping[str, Any]] = (), kind: str | None = None
    ) -> int:
        """Register the next version of a subject, and return its id."""
        entry: dict[str, Any] = {"schema": json.dumps(schema)}
        entry |= {"references": list(references)} if references else {}
        entry |= {"schemaType": kind} if kind else {}
        number = 100 + len(self.schemas)
        self.schemas[number] = entry
        self.subjects.setdefault(subject, []).append(number)
        return number

    def number(self, subject: str, schema: Schema) -> int:
        """Return the id of a schema, which is registered if it is new."""
        text = json.dumps(schema)
        return next((n for n, entry in self.schemas.items() if entry["schema"] == text), None) or self.add(
            subject, schema
        )

    def answer(self, path: str) -> tuple[int, Any]:
        self.asked.append(path)
        path, _, more = path.partition("?")
        status, body = self._answer(path, more)
        if "format=serialized" in more and isinstance(body, dict) and (number := self._id(path)) in self.serialized:
            body = {**body, "schema": self.serialized[number]}
        return status, body

    def add_file(self, subject: str, file: Any, references: Sequence[Mapping[str, Any]] = ()) -> int:
        """Register a file of Protobuf, a FileDescriptorProto, as the next version of a subject, and return its id."""
        number = self.add(subject, f"// {file.name}", references, "PROTOBUF")
        self.serialized[number] = base64.b64encode(file.SerializeToString()).decode()
        return number

    def _id(self, path: str) -> int | None:
        match path.strip("/").split("/"):
            case ["schemas", "ids", number]:
                return int(number)
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                return self.subjects[subject][-1 if version == "latest" else int(version) - 1]
        return None

    def _answer(self, path: str, more: str) -> tuple[int, Any]:
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["subjects", subject, *_] if subject in self.deleted and "deleted=true" not in more:
                return 404, {"error_code": 40401, "message": "deleted"}
            case ["subjects", subject, "versions"] if subject in self.subjects:
                return 200, list(range(1, len(self.subjects[subject]) + 1))
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                of_subject = self.subjects[subject]
                at = len(of_subject) if version == "latest" else int(version)
                if at <= len(of_subject):
                    return 200, {**self.schemas[of_subject[at - 1]], "id": of_subject[at - 1], "version": at}
        return 404, {"error_code": 40401, "message": "not found"}


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Answer for a registry until the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = base64.b64encode(":".join(registry.login or ()).encode()).decode()
            if registry.status is not None:
                status, body = registry.status, {"message": "no"}
            elif registry.login and self.headers.get("Authorization") != f"Basic {told}":
                status, body = 401, {"error_code": 40101}
            else:
                status, body = registry.answer(self.path)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()


def written(number: int, schema: Schema, value: Any) -> bytes:
    """Return a value in Confluent's wire format."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def record(name: str = "Click", /, **fields: Any) -> dict[str, Any]:
    """Return the schema of a record; a field's type may be a whole field without its name."""

    def of(field_name: str, kind: Any) -> dict[str, Any]:
        return {
            "name": field_name,
            **(kind if isinstance(kind, dict) and "of" not in kind and "default" in kind else {"type": kind}),
        }

    return {"type": "record", "name": name, "fields": [of(n, kind) for n, kind in fields.items()]}
