"""The paths of the query server."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from sessionlake.config.load import Config
from sessionlake.serve import parts
from sessionlake.serve.answers import Answers
from sessionlake.serve.decoder import RowDecoder, has_decoder
from sessionlake.serve.dispatch import HOP, Call, Dispatch, Path, Reply
from sessionlake.serve.follower import Follower
from sessionlake.serve.guard import BATCH
from sessionlake.serve.hosts import Hosts
from sessionlake.serve.keys import documented
from sessionlake.serve.meters import Meters
from sessionlake.serve.models import (
    WAIT_MS,
    After,
    Anything,
    BatchRequest,
    Envelope,
    Failure,
    Keys,
    Letters,
    Limited,
    Listed,
    Metadata,
    OneKey,
    OneRow,
    StartedRow,
    Timed,
    TimedKeys,
    list_model,
)
from sessionlake.serve.page import read_page
from sessionlake.serve.pages import LargeKeyError
from sessionlake.serve.questions import Question, included, micros_of
from sessionlake.serve.refusals import RefusedError, error_body
from sessionlake.serve.threads import Threads

DEFAULT_LIMIT = 100
LARGE_KEYS = 10_000
"""Large keys that are remembered."""


class Server:
    """The answers of a pipeline as an ASGI application."""

    def __init__(self, config: Config, follower: Follower) -> None:
        self._config, self._follower = config, follower
        self._answers = Answers(config, follower)
        self._threads = Threads()
        self._large: set[int] = set()
        """Hashes of keys that have turned out to be large: reading them on the event loop would take too long."""
        self._hosts = Hosts(config, follower, self._answers, self._threads)
        self.meters = Meters(config.pipeline.name, follower)

    def close(self) -> None:
        """Stop the threads, and close connections to other hosts."""
        self._threads.close()
        self._hosts.close()

    def application(self) -> Dispatch:
        """Return the application, with the paths of the pipeline's operator."""
        paths = self._paths()
        app = FastAPI(
            title=f"sessionlake: {self._config.pipeline.name}",
            description="Interactive queries (docs/serve.md)",
            docs_url=None,  # its assets come from elsewhere
            redoc_url=None,
            responses={code: {"model": Failure} for code in (401, 404, 412, 422, 429, 503)},
        )
        app.add_exception_handler(HTTPException, _no_such)
        for path in paths:
            app.add_api_route(
                path.path,
                _described(path),
                methods=[path.method],
                response_model=path.answer,
                name=path.handler.__name__,
                description=path.handler.__doc__,
            )
        page, headers = read_page()
        app.add_api_route("/", lambda: Response(page, media_type="text/html", headers=headers), include_in_schema=False)
        return Dispatch(paths, app, self.meters.answered)

    def _paths(self) -> list[Path]:
        names = self._config.entry.rows
        many, one, model = f"/v1/{names.list}", f"/v1/{names.one}", list_model(names)
        if names.one_per_key:
            paths = [
                Path(many, Listed, model, self.rows),
                Path(f"{many}{BATCH}", Keys, model, self.rows_of_keys, "POST"),
                Path(one, OneRow, Envelope, self.row),
            ]
        else:
            paths = [
                Path(many, Timed, model, self.listed),
                Path(f"{many}{BATCH}", TimedKeys, model, self.listed_of_keys, "POST"),
            ]
            if has_decoder(self._config, RowDecoder):
                paths.append(Path(one, StartedRow, Envelope, self.started))
        paths = [replace(path, key_columns=self._config.key_columns) for path in paths]
        if self._answers.keeps_open:
            paths.append(Path("/v1/open", Limited, model, self.open))
        return [
            *paths,
            Path("/v1/metadata", OneKey, Metadata, self.metadata, key_columns=self._config.key_columns),
            Path("/v1/batches", After, Envelope, self.batches),
            Path("/v1/dead_letters", Letters, Envelope, self.dead_letters),
            Path("/v1/dead_letter_reasons", Limited, Envelope, self.dead_letter_reasons),
            Path("/v1/status", BatchRequest, None, self.status),
            Path("/metrics", Anything, None, self.metrics),
            Path("/healthz", Anything, None, self.healthz),
        ]

    async def listed(self, asked: Timed, call: Call) -> Reply:
        """Return rows by key and time: of a key, or of a range of keys."""
        await self._ready(asked, call)
        question = self._question(
            asked, micros_of("from", asked.from_), micros_of("to", asked.to), included(asked.include), asked.order
        )
        return await self._list(asked, question, call)

    async def rows(self, asked: Listed, call: Call) -> Reply:
        """Return rows by key: of a key, or of a range of keys."""
        await self._ready(asked, call)
        return await self._list(asked, self._question(asked, None, None, frozenset(), "asc"), call)

    async def listed_of_keys(self, asked: TimedKeys, call: Call) -> Reply:
        """Return rows of keys that are named, by key and time."""
        await self._ready(asked, call)
        question = Question(
            keys=self._answers.key_texts(asked.keys),
            from_us=micros_of("from", asked.from_),
            to_us=micros_of("to", asked.to),
            limit=self._limit(asked),
            include=included(asked.include),
        )
        return await self._list(asked, self._fitting(question), call)

    async def rows_of_keys(self, asked: Keys, call: Call) -> Reply:
        """Return rows of keys that are named, by key."""
        await self._ready(asked, call)
        return await self._list(
            asked, Question(keys=self._answers.key_texts(asked.keys), limit=self._limit(asked)), call
        )

    async def started(self, asked: StartedRow, call: Call) -> Reply:
        """Return the row of a key that starts at a time; 404 if there is none."""
        await self._ready(asked, call)
        key = self._answers.key_text(asked.key)
        question = Question(key=key, include=included(asked.include))
        return await self._one(asked, key, question, micros_of("start", asked.start), call)

    async def row(self, asked: OneRow, call: Call) -> Reply:
        """Return the row of a key; 404 if there is none."""
        await self._ready(asked, call)
        key = self._answers.key_text(asked.key)
        return await self._one(asked, key, Question(key=key), None, call)

    async def open(self, asked: Limited, call: Call) -> Reply:
        """Return the longest rows that events can still lengthen; `complete` says whether all were looked at."""
        self._check_ranges("open: lists keys")
        await self._ready(asked, call)
        limit, times = self._limit(asked), asked.times
        part = _part_of(call)
        if part is not None:
            return await self._hosts.part(part, partial(self._answers.open_part, limit, times=times))
        body = await self._threads.in_stores(partial(self._answers.open_of_store, limit, times=times))
        if body is not None:
            return Reply(body)
        reply = await self._hosts.longest_open(limit, times, call)
        if reply is not None:
            return reply
        return Reply(await self._threads.in_tables(partial(self._answers.open_of_tables, limit, times=times)))

    async def dead_letters(self, asked: Letters, call: Call) -> Reply:
        """Return dead letters, those of the newest batch first."""
        self._check_ranges("dead_letters: lists rows")
        await self._ready(asked, call)
        ask = partial(self._answers.dead_letters, asked.reason, asked.cursor, self._limit(asked), times=asked.times)
        return Reply(await self._threads.in_tables(ask))

    async def dead_letter_reasons(self, asked: Limited, call: Call) -> Reply:
        """Return how many dead letters each reason has, the most frequent reason first; `complete` says whether all are here."""
        self._check_ranges("dead_letter_reasons: counts rows")
        await self._ready(asked, call)
        ask = partial(self._answers.dead_letter_reasons, self._limit(asked), times=asked.times)
        return Reply(await self._threads.in_tables(ask))

    def _check_ranges(self, what: str) -> None:
        """Raise RefusedError if keys and rows that a request does not name are not shown."""
        if not self._config.serve.ranges:
            raise RefusedError(
                403, f"{what} that nobody named, and ranges are not served here (serve.ranges); ask for keys by name"
            )

    async def metadata(self, asked: OneKey, call: Call) -> Reply:
        """Return the shard of a key, the host that keeps it, and whether that is this one; the key need not have rows."""
        await self._ready(asked, call)
        found = self._answers.metadata(self._answers.key_text(asked.key))
        url = self._hosts.url(found["host"])
        return Reply(to_json({**found, "url": url and url + call.scope.get("root_path", "")}))

    async def batches(self, asked: After, call: Call) -> Reply:
        """Return the counts of the last batches, oldest first."""
        await self._ready(asked, call)
        return Reply(self._answers.batches(asked.after, asked.before, self._limit(asked), times=asked.times))

    async def status(self, asked: BatchRequest, call: Call) -> Reply:
        """Return the last batch, its age and lag, missing shards, and counts."""
        await self._ready(asked, call)
        return Reply(to_json(self._answers.status(times=asked.times)))

    async def metrics(self, asked: Anything, call: Call) -> Reply:
        """Return metrics for Prometheus: answers, refusals, and the progress of following the pipeline."""
        del asked, call
        return Reply(self.meters.text(), media_type=CONTENT_TYPE_LATEST.encode())

    async def healthz(self, asked: Anything, call: Call) -> Reply:
        """Say that the process is alive; says nothing about the pipeline."""
        del asked, call
        return Reply(b'{"alive":true}')

    async def _list(self, asked: Listed | Keys, question: Question, call: Call) -> Reply:
        after = self._answers.asked_after(question, asked.cursor)
        part = _part_of(call)
        if part is not None:
            return await self._hosts.part(part, partial(self._answers.part, after, times=asked.times))
        body = None
        if not asked.cold:
            of_store = partial(self._answers.of_store, after, times=asked.times)
            if question.key is not None:
                body = await self._of_key(question.key, of_store)
            else:
                body = await self._threads.in_stores(of_store)
        if body is not None:
            return Reply(body)
        if not asked.cold:
            if question.key is not None and isinstance(asked, Listed):
                reply = await self._hosts.owner(question.key, call, redirect=asked.redirect)
            else:
                reply = await self._hosts.all(after, asked.times, call)
            if reply is not None:
                return reply
        return Reply(await self._threads.in_tables(lambda: self._answers.of_tables(after, times=asked.times)))

    async def _of_key(self, key: str, of_store: Callable[..., bytes | None]) -> bytes | None:
        """Return an answer about one key. A look-up is faster than the hand-over to a thread, unless the key is large."""
        name = hash(key)
        if name not in self._large:
            try:
                return of_store(at_once=True)
            except LargeKeyError:
                if len(self._large) == LARGE_KEYS:
                    self._large.clear()
                self._large.add(name)
        return await self._threads.in_stores(of_store)

    async def _one(self, asked: OneRow, key: str, question: Question, start_us: int | None, call: Call) -> Reply:
        of_store = partial(self._answers.one_of_store, question, start_us, times=asked.times)
        body = await self._of_key(key, of_store)
        if body is not None:
            return Reply(body)
        reply = await self._hosts.owner(key, call, redirect=asked.redirect)
        if reply is not None:
            return reply
        return Reply(
            await self._threads.in_tables(lambda: self._answers.one_of_tables(question, start_us, times=asked.times))
        )

    def _question(
        self, asked: Listed, from_us: int | None, to_us: int | None, include: frozenset[str], order: str
    ) -> Question:
        """Return the question; RefusedError for parameters that contradict each other."""
        ranged = (asked.key_from, asked.key_to, asked.prefix)
        if asked.key is not None and any(bound is not None for bound in ranged):
            raise RefusedError(422, "key: can't be used with key_from, key_to or prefix; ask for a key or for a range")
        if asked.key is None:
            if not any(bound is not None for bound in ranged):
                raise RefusedError(422, "key: is missing; write key, or key_from, key_to or prefix for a range")
            if not self._config.serve.ranges:
                raise RefusedError(
                    403, "key_from, key_to, prefix: ranges are not served here (serve.ranges); ask for keys by name"
                )
            if order == "desc":
                raise RefusedError(422, "order: 'desc' is for one key; ask for a key, or leave it out")
        key = None if asked.key is None else self._answers.key_text(asked.key)
        prefix = self._answers.prefix_text(asked.prefix or "")
        return self._fitting(
            Question(
                key, asked.key_from, asked.key_to, prefix, from_us, to_us, order == "desc", self._limit(asked), include
            )
        )  # fmt: skip

    def _fitting(self, asked: Question) -> Question:
        """Return a question; RefusedError if the pipeline's operator has no answers to it."""
        rows = self._config.entry.rows
        if self._answers.numbered and (asked.from_us, asked.to_us) != (None, None):
            raise RefusedError(422, f"from: {rows.computed} lie at no times; leave from and to out")
        if asked.include and not self._answers.keeps_open:
            raise RefusedError(422, f"include: is not for {rows.many}; leave it out")
        return asked

    def _limit(self, asked: Limited) -> int:
        most = self._config.serve.max_rows
        if asked.limit is None:
            return min(DEFAULT_LIMIT, most)
        if asked.limit > most:
            raise RefusedError(
                422, f"limit: {asked.limit} is more than serve.max_rows = {most}; ask for less, and go on by the cursor"
            )
        return asked.limit

    async def _ready(self, asked: BatchRequest, call: Call) -> None:
        """Wait for the requested batch. RefusedError if it does not come, or if another server means another pipeline."""
        meant = call.headers.get(HOP)
        if meant is not None and meant.decode("latin-1") != self._answers.pipeline:
            raise RefusedError(
                421,
                f"{HOP.decode()}: is of another pipeline than {self._config.pipeline.name!r}; correct serve.peers there",
            )
        least = asked.min_batch_id
        if least is None or least <= self._follower.reached:
            return
        async with call.place.waiting():
            comes = await self._follower.comes_to(least, asked.wait_ms / 1000)
        if not comes:
            found = self._follower.now.commit.batch_id
            raise RefusedError(
                412,
                f"min_batch_id: {least} is not here, the last batch is {found}; ask again, with wait_ms up to {WAIT_MS}",
            )


def _described(path: Path) -> Callable[..., Any]:
    """Return a function whose signature describes a path's parameters to FastAPI; `Dispatch` answers before it is called."""

    async def endpoint(asked: Any) -> None: ...

    asked = documented(path.asked, path.key_columns)
    endpoint.__annotations__["asked"] = asked if path.method == "POST" else Annotated[asked, Query()]
    return endpoint


def _part_of(call: Call) -> parts.PartRequest | None:
    """Return the part that another server asks for; None if a whole answer is requested."""
    return parts.PartRequest.of(call.headers.get(parts.HEADER)) if HOP in call.headers else None


async def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for it alone)
    line = f"path: {request.url.path[:100]!r} is not served by this pipeline; /openapi.json has all that are"
    return Response(
        error_body(line if error.status_code == 404 else str(error.detail)),
        error.status_code,
        media_type="application/json",
    )
