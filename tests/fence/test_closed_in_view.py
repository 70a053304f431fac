"""A view that closes its connection inside the transaction: nothing is committed, and it must not say so."""

from __future__ import annotations

import pytest
from django.db import connections
from sqlalchemy import Engine

from distlock.errors import ConfigurationError
from tests.fence.shops import Answered, DjangoShop, open_shop


def test_a_view_that_closes_its_connection_is_an_error(engine: Engine, using: str) -> None:
    with open_shop("django", engine, using, {}) as shop:
        assert isinstance(shop, DjangoShop)

        def view() -> None:
            shop.write(7)
            connections.close_all()

        shop.serve(view)
        with pytest.raises(ConfigurationError, match="closed its connection to the database 'fenced' inside"):
            shop.post()
        assert shop.read() != 7
        shop.urls.urlpatterns.clear()
        shop.serve(lambda: shop.write(7))
        assert shop.post() == Answered(200)
