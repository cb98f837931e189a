"""The server: routes, errors as json, metrics; one model, which computes in one thread."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from unitk.api import drawing
from unitk.errors import DataError, UnitkError, UsageError
from unitk.serving import batching
from unitk.serving.batching import Batcher, Claim, Job, json_line
from unitk.serving.figures import RECORD, Entry, Figures, Observed
from unitk.serving.hosts import Application, shape_refusal
from unitk.serving.keys import Keys
from unitk.serving.requests import Service, choose_service, parse_request
from unitk.serving.route import Listing, listings, routes

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
GETS = "/health", "/model", "/models", "/metrics"
SAFE = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Headers of a stream, for proxies."""
READERS = 8  # threads that read the texts of requests
UNREAD = 16  # lines of a stream that wait for a slow client; older ones are dropped
HELD = 2  # batches whose slots all searches may hold together
PIECE = 65_536  # bytes of an answer that are sent at a time
LONGEST = 1000
"""The most characters of an error, which quotes the request."""
READ = {
    # no page of another site can send it
    "content-type": (
        'application/json *(;(?! *charset)[^;]*|; *charset="?utf-?8"? *)*',
        "application/json in UTF-8",
    ),
    "content-encoding": ("(identity)?", "identity: it is read as it is"),
}
"""Header of a request -> a pattern of what it may be, and how errors say that."""
T = TypeVar("T")


class Server:
    """Answers requests; `replaced` tells whether the checkpoint on disk has changed."""

    WATCH = 30.0
    """Seconds between two looks at the checkpoint on disk, so that the log tells of another one."""

    def __init__(
        self,
        *services: Service,
        replaced: Callable[[], bool] = lambda: False,
        keys: Sequence[str] = (),
        write: Callable[[str], None] | None = None,
    ) -> None:
        self.services = services
        self.limits = services[0].limits
        self.replaced = replaced
        self.keys = keys
        self.write = write
        self.batcher = Batcher(self.limits.max_queue, HELD * self.limits.max_tokens)
        self.budget = batching.TokenBudget(self.limits.max_work)
        self.readers = ThreadPoolExecutor(READERS, "unitk-reader")
        self.figures = Figures()

    def app(self) -> Application:
        """The application, which any ASGI server can run."""
        get: dict[str, Any] = dict.fromkeys(FILES, self.page)
        get |= {"/health": self.health, "/metrics": self.metrics}
        get |= {"/model": self.model, "/models": self.models}
        for name, listing in listings().items():
            get[f"/{name}"] = get[f"/{name}/{{name:path}}"] = partial(self.tell, name, listing)
        paths = [Route(path, answer) for path, answer in get.items()]
        for verb in routes():
            paths.append(Route(f"/{verb}", partial(self.count_request, verb), methods=["POST"]))
        handlers: Any = {HTTPException: answer_refusal, Exception: answer_failure}
        app = Starlette(routes=paths, exception_handlers=handlers, lifespan=self.lifespan)
        # redirects would bypass a proxy
        app.router.redirect_slashes = False
        return Observed(Keys(app, self.keys) if self.keys else app, self.figures, self.write)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Compute, and watch the checkpoint, while the server is up."""
        tasks = [*map(asyncio.create_task, (self.batcher.run(), self.watch()))]
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
        status = {"status": "ok", "model": self.services[0].name, "replaced": replaced}
        return JSONResponse(status | {"waiting": len(self.batcher.waiting)})

    async def model(self, request: Request) -> Response:
        """What the first model can do."""
        return JSONResponse(self.services[0].describe())

    async def models(self, request: Request) -> Response:
        """What each model can do."""
        return JSONResponse({"models": [service.describe() for service in self.services]})

    async def metrics(self, request: Request) -> Response:
        """Figures in the text format of Prometheus."""
        batcher = self.batcher
        gauges = {
            "unitk_batches_total": ("Batches that were computed.", batcher.groups),
            "unitk_batched_requests_total": ("Requests in them.", batcher.joined),
            "unitk_rows": ("Texts in them that have no answer.", batcher.rows),
            "unitk_waiting": ("Requests that wait to be computed.", len(batcher.waiting)),
            "unitk_work_tokens": ("Tokens of all requests in the server.", self.budget.taken),
        }
        text = "\n".join([*self.figures.lines(gauges), ""])
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def tell(self, verb: str, listing: type[Listing], request: Request) -> Response:
        """What an address tells of the models."""
        request.scope[RECORD].verb = verb
        with explain_errors(self.limits.timeout):
            return JSONResponse(listing.tell(self.services, request.path_params.get("name", "")))

    async def count_request(self, verb: str, request: Request) -> Response:
        """The answer to a request, which has a part of the token budget until that is sent."""
        claim = Claim(self.budget)
        request.scope[RECORD].verb = verb
        try:
            return await self.answer(verb, request, claim)
        except BaseException:
            claim.release()
            raise

    async def answer(self, verb: str, request: Request, claim: Claim) -> Response:
        """The answer to a request, or an HTTPException with its status and message."""
        body = await self.body(request, claim)
        loop = asyncio.get_running_loop()
        timeout = self.limits.timeout
        end = loop.time() + timeout
        texts = deque[Any](maxlen=UNREAD)
        news = asyncio.Event()
        record = request.scope[RECORD]

        def put(text: Any) -> None:
            texts.append(text)
            news.set()

        def on_text(text: Any) -> None:
            loop.call_soon_threadsafe(put, text)

        with explain_errors(timeout):
            read = loop.run_in_executor(self.readers, self.read, verb, body, on_text, claim, record)
            self.batcher.preparing += 1
            try:
                job = await self.await_result(request, claim, read, timeout)
            finally:
                self.batcher.preparing -= 1
            claim.resize(max(job.cost, 1))
            result = asyncio.ensure_future(self.batcher.result(job, end - loop.time()))
            if job.stream is not None:
                lines = self.stream(job, result, texts, news)
                return ClaimedResponse(lines, job.stream.media_type, claim, UNBUFFERED)
            text = await self.await_result(request, claim, result, timeout)
            length = {"content-length": str(len(text))}
            return ClaimedResponse(pieces(text), "application/json", claim, length)

    def read(
        self, verb: str, raw: bytes, on_text: Callable[[Any], None], claim: Claim, record: Entry
    ) -> Job:
        """The job of a request, whose answer is json, or what its stream makes json of."""
        try:
            body = parse_request(raw)
            service = choose_service(self.services, body)
            job = service.job(verb, body, on_text, lambda: claim.gone)
        except batching.Abandoned:
            raise
        except BaseException as error:  # also that of a tokenizer, which is no Exception
            raise batching.failure(error) from None
        record.model = service.name
        record.read = job.read
        record.stream = job.stream is not None
        answer = job.answer

        def write_answer(results: list[Any]) -> Any:
            value = answer(results)
            record.written = job.written
            text = json_line(value)  # here, as the loop has other clients to serve
            return text if job.stream is None else value

        job.answer = write_answer
        return job

    async def await_result(
        self, request: Request, claim: Claim, result: asyncio.Future[T], timeout: float
    ) -> T:
        """A result, which is given up when the client hangs up or the time is over."""
        hang_up = asyncio.ensure_future(wait_for_hang_up(request))
        futures: set[asyncio.Future[Any]] = {result, hang_up}
        try:
            await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if hang_up.done() and not result.done():
                raise HTTPException(499, "the client hung up")  # as nginx counts it
            if not result.done():
                raise TimeoutError
            return result.result()
        finally:
            claim.gone = not result.done()
            hang_up.cancel()
            result.cancel()

    async def stream(
        self, job: Job, result: asyncio.Future[Any], texts: deque[Any], news: asyncio.Event
    ) -> AsyncIterator[bytes]:
        """The text so far as often as it grows, at last the answer or an error."""
        assert job.stream is not None
        result.add_done_callback(lambda _: news.set())
        try:
            while texts or not result.done():
                if texts:
                    if text := job.stream.text(texts.popleft()):
                        yield text
                else:
                    news.clear()
                    await news.wait()
            with explain_errors(self.limits.timeout):
                yield job.stream.answer(result.result())
        except HTTPException as error:
            yield job.stream.error(error.status_code, error.detail)
        finally:
            result.cancel()  # also where the client hung up in the middle

    async def body(self, request: Request, claim: Claim) -> bytes:
        """The body of a request, read up to the limits of its size and of the work."""
        limit = self.limits.max_body
        for name, (pattern, needed) in READ.items():
            given = request.headers.get(name, "")
            if not re.fullmatch(pattern, given, re.I):
                raise HTTPException(415, f"{name} must be {needed}, got {given[:99]!r}")
        body = bytearray()
        size = int(request.headers.get("content-length", 0))
        too_large = HTTPException(413, f"the request has more than {limit} bytes")
        if size > limit:
            raise too_large
        with explain_errors(self.limits.timeout):
            claim.resize(size)  # refused before it is sent, if the budget is spent
            try:
                # counted while it is read: who announces much and sends little takes little
                async for part in request.stream():
                    body += part
                    if len(body) > limit:
                        raise too_large
                    claim.resize(len(body))
            except ClientDisconnect:
                raise HTTPException(499, "the client hung up") from None
        return bytes(body)


class ClaimedResponse(StreamingResponse):
    """A body that is sent as fast as its client takes it; then its claim is given back."""

    def __init__(
        self, parts: AsyncIterator[bytes], kind: str, claim: Claim, headers: Mapping[str, str]
    ) -> None:
        super().__init__(parts, media_type=kind, headers=headers)
        self.claim = claim

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.claim.release()


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    """A body in pieces: a slow client does not hold all of it in its connection."""
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


@contextmanager
def explain_errors(timeout: float) -> Iterator[None]:
    """A context in which errors of a request become an HTTPException with status and message."""
    try:
        yield
    except (UsageError, DataError) as error:
        raise HTTPException(400, str(error)) from error
    except UnitkError as error:
        raise HTTPException(500, str(error)) from error
    except batching.Busy as error:
        raise HTTPException(503, "the server has too much work; try again later") from error
    except batching.NoMemory as error:
        raise HTTPException(
            503, "there is too little memory for this request; ask for less at a time"
        ) from error
    except batching.Internal as error:
        raise HTTPException(500, "internal error: the log of the server has more") from error
    except TimeoutError as error:
        raise HTTPException(
            504, f"the request was given up after {timeout:g} seconds; ask for less at a time"
        ) from error


async def wait_for_hang_up(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def answer_refusal(request: Request, error: HTTPException) -> Response:
    """An error as json; of an address that there is not, those there are."""
    path = request.url.path
    headers = dict(error.headers or {})
    message = error.detail
    if error.status_code == 404:
        known = ", ".join([*GETS, *(f"/{name}" for name in (*listings(), *routes()))])
        message = f"the address must be one of {known}, got {path}"
    if error.status_code == 405:
        message = f"the method must be {headers['Allow']}, got {request.method} {path}"
    if error.status_code == 503:
        headers["Retry-After"] = "1"
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]}..."
    return shape_refusal(path, error.status_code, message, headers, error.__cause__)


async def answer_failure(request: Request, error: Exception) -> Response:
    """What nobody expected, which the log has in full."""
    message = "internal error: the log of the server has more"
    return shape_refusal(request.url.path, 500, message, error=error)
