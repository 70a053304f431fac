from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_distlock import locks
from tests.django_distlock.fresh.stale_shop import MODELS, Product


@pytest.fixture
def product(transactional_db: None, settings: Any) -> Iterator[Product]:
    """One product, in debug mode."""
    settings.DISTLOCK = {"default": {"LOCATION": f"memory://{secrets.token_hex(4)}"}}
    settings.DEBUG = True
    with connection.schema_editor() as editor:
        for model in MODELS:
            editor.create_model(model)
    yield Product.objects.create(id=1)
    locks.close_all()
    with connection.schema_editor() as editor:
        for model in reversed(MODELS):
            editor.delete_model(model)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What the detector has told, filled while the test runs."""

    class Told(list[str]):
        def __getitem__(self, index: Any) -> Any:
            return self._messages()[index]

        def __len__(self) -> int:
            return len(self._messages())

        def __iter__(self) -> Iterator[str]:
            return iter(self._messages())

        def __eq__(self, other: object) -> bool:
            return self._messages() == other

        def _messages(self) -> list[str]:
            records = [*caplog.get_records("setup"), *caplog.get_records("call")]
            return [one.getMessage() for one in records if "was loaded before the lock" in one.getMessage()]

    with caplog.at_level(logging.WARNING, "distlock"):
        yield Told()
