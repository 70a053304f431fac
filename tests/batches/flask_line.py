"""The same line of requests as in `tests.batches.django_line`, in Flask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import request
from sqlalchemy import Engine, event

from distlock import Locks
from flask_distlock import distributed_lock
from tests.batches.django_line import Acts, Line
from tests.fence.shops import FlaskShop

#: What an act returns where its view is not to commit.
UNCOMMITTED = object()


class FlaskLine(Line):
    def __init__(self, shop: FlaskShop, engine: Engine) -> None:
        super().__init__(engine)
        self.shop = shop

    def serve(self, acts: Acts, **guard: Any) -> None:
        """A view that sells one piece, does what *acts* has for the query of its request, and commits."""

        @self.shop.app.post("/product/<int:id>")
        @distributed_lock("product_<id>", **{"fence": True, "batch": 32, **guard})
        def sell(id: int) -> Any:
            self.shop.write(self.shop.read() - 1)
            name = request.query_string.decode()
            self.done.append(name)
            result = acts.get(name, lambda: None)()
            if result is not UNCOMMITTED:
                self.shop.db.session.commit()
            return "sold"

    @contextmanager
    def counted_commits(self) -> Iterator[list[object]]:
        """Gives the connection of each COMMIT in the block."""
        commits: list[object] = []
        note = commits.append
        event.listen(Engine, "commit", note)
        try:
            yield commits
        finally:
            event.remove(Engine, "commit", note)

    def post(self, path: str) -> Any:
        self.shop.app.testing = False
        return self.shop.app.test_client().post(path)

    def client(self) -> Locks:
        client: Locks = self.shop.app.extensions["distlock"].clients["default"]
        return client
