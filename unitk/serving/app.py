"""The server: routes, errors as json, metrics; one model, which computes in one thread."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from unitk.api import drawing
from unitk.errors import DataError, UnitkError, UsageError
from unitk.foreign import parse_json
from unitk.serving.batching import Batcher, Job, QueueFull
from unitk.serving.requests import Service
from unitk.serving.verbs import VERBS

OWN = Path(__file__).with_name("page")
FILES = {
    "/": OWN / "index.html",
    "/page.css": OWN / "page.css",
    "/page.js": OWN / "page.js",
    "/draw.js": OWN / "draw.js",
    "/mask.css": drawing.PAGE / "mask.css",
    "/mask.js": drawing.PAGE / "mask.js",
}
"""Address -> file of the page; nothing else is read from disk."""
SAFE = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Server:
    """Answers requests; `replaced` tells whether the checkpoint on disk has changed."""

    WATCH = 30.0
    """Seconds between two looks at the checkpoint on disk, so that the log tells of another one."""

    def __init__(self, service: Service, replaced: Callable[[], bool] = lambda: False) -> None:
        self.service, self.replaced, limits = service, replaced, service.limits
        self.batcher = Batcher(limits.max_queue)
        self.answered: Counter[tuple[str, int]] = Counter()  # by verb and status
        self.seconds = 0.0

    def app(self) -> Starlette:
        """The application, which any ASGI server can run."""
        get = {"/health": self.health, "/model": self.model, "/metrics": self.metrics}
        routes = [Route(path, self.page, methods=["GET"]) for path in FILES]
        routes += [Route(path, answer, methods=["GET"]) for path, answer in get.items()]
        routes += [
            Route(f"/{verb}", partial(self.counted, verb), methods=["POST"]) for verb in VERBS
        ]
        handlers: Any = {HTTPException: refused, Exception: broken}
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self.lifespan)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Compute, and watch the checkpoint, while the server is up."""
        tasks = [asyncio.create_task(one) for one in (self.batcher.run(), self.watch())]
        yield
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def watch(self) -> None:
        """Look at the checkpoint now and then until it is replaced, which is logged once."""
        while not await run_in_threadpool(self.replaced):
            await asyncio.sleep(self.WATCH)

    async def page(self, request: Request) -> Response:
        """A file of the page."""
        path = FILES[request.url.path]
        kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
        return Response(path.read_text("utf-8"), media_type=kinds[path.suffix], headers=SAFE)

    async def health(self, request: Request) -> Response:
        """Whether it answers, and whether the checkpoint was replaced since it was loaded."""
        replaced = await run_in_threadpool(self.replaced)
        found = {"status": "ok", "model": self.service.name, "replaced": replaced}
        return JSONResponse(found | {"waiting": len(self.batcher.waiting)})

    async def model(self, request: Request) -> Response:
        """What the model can do."""
        return JSONResponse(self.service.about())

    async def metrics(self, request: Request) -> Response:
        """Figures in the text format of Prometheus."""
        batcher = self.batcher
        lines = [
            f'unitk_requests_total{{verb="{verb}",status="{status}"}} {count}'
            for (verb, status), count in sorted(self.answered.items())
        ]
        lines += [
            f"unitk_request_seconds_total {self.seconds:.6f}",
            f"unitk_batches_total {batcher.groups}",
            f"unitk_batched_requests_total {batcher.joined}",
            f"unitk_waiting {len(batcher.waiting)}",
        ]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def counted(self, verb: str, request: Request) -> Response:
        """The answer to a request, counted with its status."""
        begun, status = time.perf_counter(), 500
        try:
            response = await self.answer(verb, request)
            status = response.status_code
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            self.answered[verb, status] += 1
            self.seconds += time.perf_counter() - begun
        return response

    async def answer(self, verb: str, request: Request) -> Response:
        """The answer to a request, or an HTTPException with its status and message."""
        given = await self.body(request)
        # never longer than an output has tokens, however slowly a client reads
        texts: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def on_text(text: str) -> None:
            loop.call_soon_threadsafe(texts.put_nowait, text)

        with explained(self.service.limits.timeout):
            # tokenizing takes milliseconds, in which the loop serves others
            self.batcher.preparing += 1
            try:
                job = await run_in_threadpool(self.service.job, verb, given, on_text)
            finally:
                self.batcher.preparing -= 1
            if isinstance(given, dict) and given.get("stream"):
                return StreamingResponse(self.stream(job, texts), media_type="application/x-ndjson")
            result = await self.unless_gone(request, job)
        return JSONResponse(result)

    async def unless_gone(self, request: Request, job: Job) -> Any:
        """The result of a job, which is given up when the client hangs up."""
        result = asyncio.ensure_future(self.batcher.result(job, self.service.limits.timeout))
        left = asyncio.ensure_future(hung_up(request))
        try:
            await asyncio.wait({result, left}, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise HTTPException(499, "the client hung up")  # as nginx counts it
            return result.result()
        finally:
            left.cancel()
            result.cancel()

    async def stream(self, job: Job, texts: asyncio.Queue[str | None]) -> AsyncIterator[str]:
        """Lines of json: the text so far as often as it grows, at last the answer or an error."""
        result = asyncio.ensure_future(self.batcher.result(job, self.service.limits.timeout))
        result.add_done_callback(lambda _: texts.put_nowait(None))
        try:
            while (text := await texts.get()) is not None:
                yield line({"text": text})
            with explained(self.service.limits.timeout):
                yield line(result.result())
        except HTTPException as error:
            yield line({"error": error.detail})
        finally:
            result.cancel()  # also where the client hung up in the middle

    async def body(self, request: Request) -> Any:
        """The json of a request, read up to the limit."""
        most = self.service.limits.max_body
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # which no page of another site can send
            raise HTTPException(415, f"content-type must be application/json, got {kind!r}")
        # counted while it is read: a header can lie about the length
        found = bytearray()
        try:
            async for part in request.stream():
                found += part
                if len(found) > most:
                    raise HTTPException(413, f"the request has more than {most} bytes")
        except ClientDisconnect:
            raise HTTPException(499, "the client hung up") from None
        try:
            return parse_json(bytes(found), "the request")
        except DataError as error:
            raise HTTPException(400, str(error)) from error


@contextmanager
def explained(timeout: float) -> Iterator[None]:
    """A context in which errors of a request become an HTTPException with status and message."""
    try:
        yield
    except (UsageError, DataError) as error:
        raise HTTPException(400, str(error)) from error
    except UnitkError as error:
        raise HTTPException(500, str(error)) from error
    except QueueFull as error:
        raise HTTPException(503, "too many requests wait; try again later") from error
    except TimeoutError as error:
        after = f"the request was given up after {timeout:g} seconds"
        raise HTTPException(504, f"{after}; ask for less at a time") from error


async def hung_up(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def line(value: Any) -> str:
    """A line of json."""
    return json.dumps(value, ensure_ascii=False) + "\n"


async def refused(request: Request, error: HTTPException) -> Response:
    """An error as json; of an address that there is not, those there are."""
    said = error.detail
    if error.status_code == 404:
        known = ", ".join(["/health", "/model", "/metrics", *(f"/{verb}" for verb in VERBS)])
        said = f"there is no address {request.url.path} (known: {known})"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        said = f"{request.url.path} takes {allowed}, not {request.method}"
    headers = dict(error.headers or {}) | ({"Retry-After": "1"} if error.status_code == 503 else {})
    return JSONResponse({"error": said}, error.status_code, headers)


async def broken(request: Request, error: Exception) -> Response:
    """What nobody expected, which the log has in full."""
    return JSONResponse({"error": "internal error: the log of the server has more"}, 500)
