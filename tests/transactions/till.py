"""What one cell of the matrix is: a sale through a real handler, and what the database says of it then."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any
from wsgiref.util import setup_testing_defaults

from distlock.grants.current import current_grants
from distlock.testing.history import HistoryRecord, check_history

THREADS = 8
POSTS = 2
STOCK = 10
REQUESTS = THREADS * POSTS

#: A COMMIT takes a while where disks and replicas are real. Here it does in every run, whatever the guard.
COMMIT_TAKES = 0.005
#: So does what a shop thinks about between reading and writing.
DECIDING_TAKES = 0.001

#: The fence under which the running code sells, where no guard of ours is there to tell.
told_fence: ContextVar[tuple[int, int] | None] = ContextVar("told_fence", default=None)


#: Called when something was sold, and before COMMIT: lets the client of the request go away.
on_sale: ContextVar[Callable[[], object]] = ContextVar("on_sale", default=lambda: None)


@dataclass
class Sale:
    fence: tuple[int, int] | None
    since: float
    until: float | None = None
    committed: bool = False


@dataclass
class Outcome:
    """What one cell came to."""

    sold: int
    left: int
    #: How many requests ended so: a status, or what the handler raised.
    answers: dict[str, int]
    #: What the history of the sales has against the lock.
    wrong: list[str] = field(default_factory=list)
    #: What a refusal said.
    refusal: str = ""

    def dump(self) -> str:
        return json.dumps(asdict(self))


def fence_here() -> tuple[int, int] | None:
    """Return the fence of the innermost guard here, without a note that somebody asked for it."""
    mine = current_grants()
    return tuple(mine[-1].grant.fence) if mine else None


class Book:
    """The time of each sale, from the first read to the end of COMMIT, with the fence it ran under."""

    def __init__(self) -> None:
        self.sales: list[Sale] = []
        self._mine = threading.local()

    @contextmanager
    def selling(self) -> Iterator[None]:
        sale = self._mine.sale = Sale(fence_here() or told_fence.get(), time.monotonic())
        self.sales.append(sale)
        try:
            yield
        finally:
            sale.until = time.monotonic()

    def committed(self) -> None:
        """A COMMIT of this thread has ended just now."""
        if (sale := getattr(self._mine, "sale", None)) is not None:
            sale.until, sale.committed = time.monotonic(), True

    def rolled_back(self) -> None:
        """A ROLLBACK of this thread: what it commits next is something else."""
        self._mine.sale = None

    def complaints(self, guard: str) -> list[str]:
        """What the sales have against the lock. A few are enough."""
        by_fence = guard in {"fence", "batch", "row"}
        # What was rolled back has left no fence behind.
        sales = [sale for sale in self.sales if sale.fence is not None and (sale.committed or not by_fence)]
        if guard == "batch":
            # Those of one batch have one fence, and one COMMIT.
            sales = list({sale.fence: sale for sale in sales}.values())
        records = [
            HistoryRecord("product_1", f"sale {number}", sale.since, sale.since, sale.until, sale.fence)
            for number, sale in enumerate(sales)
        ]
        # The row of the fence lets the next one in while the answer to COMMIT is still on its way.
        return check_history(records, disjoint=not by_fence)[:3]


@dataclass(frozen=True)
class Answer:
    status: str
    body: bytes

    @property
    def is_lost(self) -> bool:
        """Nothing happened, and the answer says to try again."""
        codes = (b'"lock_lost"', b'"lock_batch_failed"')
        return self.status == "503" and any(code in self.body for code in codes)


def ask_wsgi(application: Any, query: str = "") -> Answer:
    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": "/product/1/buy", "QUERY_STRING": query}
    setup_testing_defaults(environ)
    statuses: list[str] = []
    try:
        response = application(environ, lambda status, headers, error=None: statuses.append(status[:3]))
        try:
            return Answer(statuses[0], b"".join(response))
        finally:
            if hasattr(response, "close"):
                response.close()
    except SystemExit:
        return Answer("exit", b"")


async def ask_asgi(application: Any, query: str = "", gone: asyncio.Event | None = None) -> Answer:
    """*gone*: when the client goes away."""
    statuses: list[str] = []
    body: list[bytes] = []
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(str(message["status"]))
        body.append(message.get("body", b""))

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/product/1/buy",
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost")],
    }
    await application(scope, receive, send)
    return Answer(statuses[0] if statuses else "gone", b"".join(body))


def sell_by_threads(post: Callable[[], Answer], leave: Callable[[], None]) -> dict[str, int]:
    """Eight threads post twice each, and again where a lock was lost. *leave*: called by each."""
    answers: Counter[str] = Counter()
    start = threading.Barrier(THREADS)

    def shop() -> None:
        start.wait()
        for _ in range(POSTS):
            while (answer := post()).is_lost:
                pass
            answers[answer.status] += 1
        leave()

    threads = [threading.Thread(target=shop) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(sorted(answers.items()))


def sell_by_tasks(post: Callable[[], Awaitable[Answer]]) -> dict[str, int]:
    """As `sell_by_threads`, by eight tasks of one event loop."""
    answers: Counter[str] = Counter()

    async def shop() -> None:
        for _ in range(POSTS):
            while (answer := await post()).is_lost:
                pass
            answers[answer.status] += 1

    async def shop_together() -> None:
        await asyncio.gather(*(shop() for _ in range(THREADS)))

    asyncio.run(shop_together())
    return dict(sorted(answers.items()))
