"""What ``batch=`` can never do is an error of the import, in both frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import django_distlock
import flask_distlock
from distlock.errors import ConfigurationError


def buy(request: Any, id: int) -> str:
    return "sold"


async def abuy(request: Any, id: int) -> str:
    return "sold"


@pytest.mark.parametrize(
    ("names", "batch", "view", "message"),
    [
        (["a"], 1, buy, "batch=1 has to be a whole number from 2 to 1000"),
        (["a"], True, buy, "batch=True has to be"),
        (["a"], "32", buy, "batch='32' has to be"),
        (["a", "b"], 32, buy, "batch=32 stands beside 2 names.*leave batch= out, or name one lock"),
        (["a"], 32, abuy, "abuy is async and has batch=32.*Write a plain 'def'"),
    ],
)
@pytest.mark.parametrize("face", [django_distlock, flask_distlock])
def test_what_is_refused_at_import(
    face: Any, names: list[str], batch: Any, view: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        face.distributed_lock(*names, batch=batch)(view)
