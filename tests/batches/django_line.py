"""Requests that stand in line for one product of a shop in Django: those that are there are one batch."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from sqlalchemy import Engine, text

from distlock import Locks
from django_distlock import distributed_lock, locks
from tests.fence.shops import DjangoShop
from tests.redis_server import eventually

#: A view does what stands in the request's query.
Acts = dict[str, Callable[[], object]]


class Answer(NamedTuple):
    status: int
    code: str = ""


class Line(ABC):
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        #: What the requests stand in line for.
        self.name = "product_1"
        #: What was done, in order, by whichever thread.
        self.done: list[str] = []

    @abstractmethod
    def serve(self, acts: Acts, **guard: Any) -> None:
        """A view that sells one piece, and then does what *acts* has for the query of its request."""

    @abstractmethod
    def post(self, path: str) -> Any:
        """The response to one request, in the running thread."""

    @abstractmethod
    def client(self) -> Locks:
        """That of the guards."""

    def ask(self, name: str) -> Answer:
        """What one request is answered."""
        response = self.post(f"/product/1?{name}")
        problem = response.headers["Content-Type"] == "application/problem+json"
        return Answer(response.status_code, json.loads(response.text)["code"] if problem else "")

    def wait_for(self, many: int) -> None:
        """Until so *many* stand in line."""
        queues = self.client().namespace.engine.queues  # type: ignore[attr-defined]
        eventually(
            lambda: sum(len(room.waiters) for room in list(queues.by_key.values())) == many,
            f"{many} stand in line",
        )

    @contextmanager
    def standing(self, *names: str) -> Iterator[dict[str, Answer]]:
        """In the block they stand in line, in this order. At its end they are served."""
        answers: dict[str, Answer] = {}

        def ask(name: str) -> None:
            answers[name] = self.ask(name)

        threads = [threading.Thread(target=ask, args=(name,)) for name in names]
        with self.client().lock(self.name):
            for there, thread in enumerate(threads, 1):
                thread.start()
                self.wait_for(there)
            yield answers
        for thread in threads:
            thread.join()

    def answers(self, *names: str) -> dict[str, Answer]:
        with self.standing(*names) as answers:
            pass
        return answers

    def left(self) -> int:
        """The stock, as another connection sees it."""
        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT qty FROM stock")).scalar_one())

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))


class DjangoLine(Line):
    def __init__(self, shop: DjangoShop, engine: Engine) -> None:
        super().__init__(engine)
        self.shop = shop
        self.using = shop.using
        #: Views wait for it after their sale.
        self.goes_on = threading.Event()
        self.goes_on.set()

    def serve(self, acts: Acts, **guard: Any) -> None:
        """A view that sells one piece, and then does what *acts* has for the query of its request."""

        def sell(request: HttpRequest, id: int) -> HttpResponse:
            stock = self.shop.read()
            self.shop.write(stock - 1)
            name = request.META["QUERY_STRING"]
            self.done.append(name)
            self.goes_on.wait(60)
            result = acts.get(name, lambda: None)()
            return result if isinstance(result, HttpResponse) else HttpResponse("sold")

        words = {"fence": self.using, "batch": 32, **guard}
        self.shop.urls.urlpatterns.append(
            path("product/<int:id>", distributed_lock("product_<id>", **words)(sell))
        )

    def post(self, path: str) -> Any:
        try:
            return Client(raise_request_exception=False).post(path)
        finally:
            connections.close_all()

    def client(self) -> Locks:
        return locks["default"]

    def standing_in_view(self, *names: str) -> dict[str, Answer]:
        """As `answers`, where the lock can't be held but by the view of the first request."""
        self.goes_on.clear()
        answers: dict[str, Answer] = {}

        def ask(name: str) -> None:
            answers[name] = self.ask(name)

        threads = [threading.Thread(target=ask, args=(name,)) for name in names]
        for there, thread in enumerate(threads):
            thread.start()
            eventually(lambda: self.done, "the first one is in its view")
            self.wait_for(there)
        self.goes_on.set()
        for thread in threads:
            thread.join()
        return answers


@contextmanager
def counted_commits() -> Iterator[list[str]]:
    """Gives the database alias of each COMMIT of Django in the block."""
    commits: list[str] = []
    commit = BaseDatabaseWrapper.commit

    def counting(self: Any) -> None:
        commits.append(self.alias)
        commit(self)

    BaseDatabaseWrapper.commit = counting  # type: ignore[method-assign]
    try:
        yield commits
    finally:
        BaseDatabaseWrapper.commit = commit  # type: ignore[method-assign]
