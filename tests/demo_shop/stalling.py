"""The shop, whose requests may ask to tell how far they are, and to stay there: what a test kills it in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

#: Each names a file that is made at that moment.
INSIDE, COMMITTED = "HTTP_X_TELL_INSIDE", "HTTP_X_STAY_COMMITTED"


def tell_inside(environ: dict[str, Any]) -> None:
    """The lock is held, and nothing is committed yet."""
    if INSIDE in environ:
        Path(environ[INSIDE]).touch()


def stalling(shop: Application) -> Application:
    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        answer = shop(environ, start_response)
        if COMMITTED in environ:
            Path(environ[COMMITTED]).touch()
            threading.Event().wait(60)
        return answer

    return application
