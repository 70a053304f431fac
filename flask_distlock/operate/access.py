"""Access to the page of locks: what the site says of a request; and that one to break comes from the page."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from flask import Response, abort, request

from distlock.errors import ConfigurationError

#: Called without arguments in a request. True: it goes on. False: 403. A response: that is the answer.
Access = Callable[[], Any]


def refuse_unfit(word: str, access: object) -> None:
    """Raise `ConfigurationError` unless *access*, the argument *word*, can be called as an `Access`."""
    if not callable(access):
        raise ConfigurationError(
            f"The page of locks needs {word}=, a function that returns True for a request that may use it: "
            "locks_blueprint(allowed=lambda: current_user.is_authenticated and current_user.is_admin)."
        )
    if inspect.iscoroutinefunction(access):
        raise ConfigurationError(
            f"{word}= is async, and the page of locks calls plain functions: write 'def'."
        )


def check_access(word: str, access: Access) -> Response | None:
    """The answer for a request that *access* does not let in; None: it may go on."""
    said = access()
    if said is True:
        return None
    # A redirect to the login, such as Flask-Login's unauthorized(), is as true as any object.
    if isinstance(said, Response):
        return said
    if said is False or said is None:
        abort(403)
    raise ConfigurationError(
        f"{word}= of the page of locks returned a {type(said).__name__}: write bool(...) around it. "
        "True lets the request in, False is a 403, and a response is the answer."
    )


def refuse_foreign() -> None:
    """Answer 403 unless the request comes from a page of this very site.

    All browsers say so by themselves, and no page of another site can change what they say. So there is no
    token, and no session is needed.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        ours = site == "same-origin"
    else:
        # Browsers leave that out on plain HTTP.
        ours = origin is not None and urlsplit(origin).netloc == request.host
    if not ours:
        abort(
            403,
            description="Nothing was done: the request does not come from this page. Behind a proxy, the "
            "app has to know the host that browsers see: werkzeug.middleware.proxy_fix.ProxyFix.",
        )
