"""The paths of the query server."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from sessionlake.config.load import Config
from sessionlake.errors import SessionlakeError
from sessionlake.serve.answers import LISTS, Answers
from sessionlake.serve.encoded import Times
from sessionlake.serve.following import Following
from sessionlake.serve.models import (
    MODELS,
    WAIT_MS,
    After,
    Asked,
    Envelope,
    Failure,
    Limited,
    Listed,
    OneRow,
    OneSession,
    Rows,
    Sessions,
    Timed,
)
from sessionlake.serve.page import read_page
from sessionlake.serve.questions import Question, included, micros_of
from sessionlake.serve.refused import RefusedError, error_body, refusal

DEFAULT_LIMIT = 100
_PAUSE_S = 0.02
_THREADS, _SLOW_THREADS = 8, 2
"""That look for pages in the stores, and for anything in the tables: the slow ones keep none of the others waiting."""
T = TypeVar("T")


class Server:
    """The answers of a pipeline as an ASGI application."""

    def __init__(self, config: Config, following: Following) -> None:
        self._config, self._following = config, following
        self._answers = Answers(config, following)
        self._pool = ThreadPoolExecutor(_THREADS, "stores")
        self._slow = ThreadPoolExecutor(_SLOW_THREADS, "tables")

    def close(self) -> None:
        """Let go of the threads."""
        for pool in (self._pool, self._slow):
            pool.shutdown(wait=False, cancel_futures=True)

    def application(self) -> FastAPI:
        """Return the application, with the paths of the pipeline's operator."""
        failures: dict[int | str, dict[str, Any]] = {
            code: {"model": Failure} for code in (401, 404, 412, 422, 429, 503)
        }
        app = FastAPI(
            title=f"sessionlake: {self._config.pipeline.name}",
            description="Interactive queries (docs/serve.md)",
            docs_url=None,  # its assets come from elsewhere
            redoc_url=None,
            responses=failures,
        )
        app.add_exception_handler(RequestValidationError, _invalid)
        app.add_exception_handler(HTTPException, _no_such)
        for kind in (SessionlakeError, Exception):
            app.add_exception_handler(kind, _failed)
        name = LISTS[self._config.operator]
        if self._config.operator == "table":
            app.get("/v1/rows", response_model=Rows)(self.rows)
            app.get("/v1/row", response_model=Envelope)(self.row)
        else:
            app.get(f"/v1/{name}", response_model=MODELS[name])(self.listed)
        if self._config.operator == "session":
            app.get("/v1/session", response_model=Envelope)(self.session)
            app.get("/v1/open", response_model=Sessions)(self.open)
        app.get("/v1/batches", response_model=Envelope)(self.batches)
        app.get("/v1/status")(self.status)
        app.get("/healthz")(self.healthz)
        page, headers = read_page()
        app.add_api_route("/", lambda: Response(page, media_type="text/html", headers=headers), include_in_schema=False)
        return app

    async def listed(self, asked: Annotated[Timed, Query()]) -> Response:
        """Return sessions, windows or pairs, by key and time: of a key, or of a range of keys."""
        return await self._list(
            asked, micros_of("from", asked.from_), micros_of("to", asked.to), included(asked.include), asked.order
        )

    async def rows(self, asked: Annotated[Listed, Query()]) -> Response:
        """Return rows of a keyed table, by key: of a key, or of a range of keys."""
        return await self._list(asked, None, None, frozenset(), "asc")

    async def session(self, asked: Annotated[OneSession, Query()]) -> Response:
        """Return the session of a key that starts at a time; 404 where there is none."""
        await self._wait(asked)
        question = Question(key=asked.key, include=included(asked.include))
        return await self._one(question, micros_of("start", asked.start), asked.times)

    async def row(self, asked: Annotated[OneRow, Query()]) -> Response:
        """Return the row of a key; 404 where there is none."""
        await self._wait(asked)
        return await self._one(Question(key=asked.key), None, asked.times)

    async def open(self, asked: Annotated[Limited, Query()]) -> Response:
        """Return the longest sessions that events can still lengthen; `complete` says whether all were looked at."""
        await self._wait(asked)
        limit = self._limit(asked)
        return _json(await self._in_thread(lambda: self._answers.longest_open(limit, times=asked.times)))

    async def batches(self, asked: Annotated[After, Query()]) -> Response:
        """Return what the last batches counted, oldest first."""
        await self._wait(asked)
        return _json(self._answers.batches(asked.after, self._limit(asked), times=asked.times))

    async def status(self, asked: Annotated[Asked, Query()]) -> Response:
        """Return the last batch, its age and lag, shards that are not here, and what was counted."""
        await self._wait(asked)
        return _json(to_json(self._answers.status(times=asked.times)))

    async def healthz(self) -> Response:
        """Say that the process is alive; of the pipeline it says nothing."""
        return _json(b'{"alive":true}')

    async def _list(
        self,
        asked: Listed,
        from_us: int | None,
        to_us: int | None,
        include: frozenset[str],
        order: str,
    ) -> Response:
        await self._wait(asked)
        question = self._question(asked, from_us, to_us, include, order)
        after = self._answers.asked_after(question, asked.cursor)

        def of_store() -> bytes | None:
            return self._answers.of_store(after, times=asked.times)

        body = None
        if not asked.cold:
            # A look-up of one key takes less than handing it to a thread.
            body = of_store() if asked.key is not None else await self._in_thread(of_store)
        if body is None:
            body = await self._in_thread(lambda: self._answers.of_tables(after, times=asked.times), self._slow)
        return _json(body)

    async def _one(self, question: Question, start_us: int | None, times: Times) -> Response:
        body = self._answers.one_of_store(question, start_us, times=times)
        if body is None:
            body = await self._in_thread(
                lambda: self._answers.one_of_tables(question, start_us, times=times), self._slow
            )
        return _json(body)

    def _question(
        self, asked: Listed, from_us: int | None, to_us: int | None, include: frozenset[str], order: str
    ) -> Question:
        """Return what is asked for; RefusedError for what doesn't go together."""
        ranged = (asked.key_from, asked.key_to, asked.prefix)
        if asked.key is not None and any(bound is not None for bound in ranged):
            raise RefusedError(422, "key: stands beside key_from, key_to or prefix; ask for a key or for a range")
        if asked.key is None:
            if not any(bound is not None for bound in ranged):
                raise RefusedError(422, "key: is missing; write key, or key_from, key_to or prefix for a range")
            if not self._config.serve.ranges:
                raise RefusedError(
                    403, "key_from, key_to, prefix: ranges are not served here (serve.ranges); ask for a key"
                )
            if order == "desc":
                raise RefusedError(422, "order: 'desc' is for one key; ask for a key, or leave it out")
        if self._config.section.by_count and (from_us, to_us) != (None, None):
            raise RefusedError(422, "from: windows by count lie at no times; leave from and to out")
        if include and self._config.operator != "session":
            raise RefusedError(422, "include: is of sessions; leave it out")
        return Question(
            asked.key, asked.key_from, asked.key_to, asked.prefix or "", from_us, to_us, order == "desc", self._limit(asked), include
        )  # fmt: skip

    def _limit(self, asked: Limited) -> int:
        most = self._config.serve.max_rows
        if asked.limit is None:
            return min(DEFAULT_LIMIT, most)
        if asked.limit > most:
            raise RefusedError(
                422, f"limit: {asked.limit} is more than serve.max_rows = {most}; ask for less, and go on by the cursor"
            )
        return asked.limit

    async def _wait(self, asked: Asked) -> None:
        """Wait for the batch that is asked for; RefusedError where it has not come."""
        least = asked.min_batch_id
        if least is None:
            return
        due = asyncio.get_running_loop().time() + asked.wait_ms / 1000
        while self._following.reached < least:
            if asyncio.get_running_loop().time() >= due:
                found = self._following.now.commit.batch_id
                raise RefusedError(
                    412,
                    f"min_batch_id: {least} is not here, the last batch is {found}; ask again, with wait_ms up to {WAIT_MS}",
                )
            await asyncio.sleep(_PAUSE_S)

    async def _in_thread(self, function: Callable[[], T], pool: ThreadPoolExecutor | None = None) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool or self._pool, function)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def _failed(_: Request, error: Exception) -> Response:
    refused = refusal(error)
    return Response(refused.body, refused.status, refused.headers, "application/json")


async def _invalid(_: Request, error: Exception) -> Response:
    """Say what is wrong with the parameters, in one line."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for it alone)
    problem = error.errors()[0]
    name, value = ".".join(map(str, problem["loc"][1:])), problem.get("input")
    match problem["type"]:
        case "extra_forbidden":
            line = f"{name}: is no parameter here; remove it (/openapi.json has all)"
        case "missing":
            line = f"{name}: is missing; add it"
        case _:
            line = f"{name}: {str(value)[:100]!r} is wrong: {problem['msg'][0].lower()}{problem['msg'][1:]}; correct it"
    return Response(error_body(line), 422, media_type="application/json")


async def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for it alone)
    line = f"path: {request.url.path[:100]!r} is not served by this pipeline; /openapi.json has all that are"
    return Response(
        error_body(line if error.status_code == 404 else str(error.detail)),
        error.status_code,
        media_type="application/json",
    )
