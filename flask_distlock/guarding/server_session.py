"""Reads ``flask.session`` again under the lock, if a server-side interface such as Flask-Session has it.

Flask opens the session before the guard of the view waits, and other requests may change it meanwhile, unless
it is in a cookie. So the guard opens it again once it has the lock. Flask saves it inside ``wsgi_app``, and a
view keeps its lock until that returns.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from copy import deepcopy
from typing import Any, cast

from flask import Flask, current_app, request, session

from distlock.grants.grant import Grant
from distlock.web.decorator import Guarded
from distlock.web.sessions import REFRESH_SESSION, merge
from distlock.web.stack import UpperGuard, serialises_session

#: The attribute of a session with a copy of the data that it has loaded.
_LOADED = "_distlock_loaded"


def session_under(guarded: Guarded, uppers: Sequence[UpperGuard] = ()) -> ServerSession | None:
    """Return the session that a view under *guarded* has to compare with its store, or None."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    if not app.config[REFRESH_SESSION]:
        return None
    loaded: Any = session._get_current_object()  # type: ignore[attr-defined]
    if getattr(loaded, "sid", None) is None or not serialises_session(guarded, uppers):
        return None
    return ServerSession(app, loaded)


def stamp_session(app: Flask) -> None:
    """Keep a copy of the data that the session of the current request has loaded, before hooks change it."""
    if not app.config[REFRESH_SESSION]:
        return
    loaded: Any = session._get_current_object()  # type: ignore[attr-defined]
    if getattr(loaded, "sid", None) is not None:
        modified, accessed = loaded.modified, loaded.accessed
        setattr(loaded, _LOADED, deepcopy(dict(loaded)))
        loaded.modified, loaded.accessed = modified, accessed


class ServerSession:
    """The server-side session of one request. A `distlock.web.guard.Companion`."""

    def __init__(self, app: Flask, loaded: Any) -> None:
        self._app = app
        self._loaded = loaded

    def begun(self, grant: Grant) -> None:
        """Read the store again, and merge what other requests changed during the wait into the session."""
        loaded = self._loaded
        fresh: Any = self._app.session_interface.open_session(self._app, request)
        if fresh is None or fresh.sid != loaded.sid:
            # The session is new, or was deleted.
            return
        modified, accessed = loaded.modified, loaded.accessed
        before = getattr(loaded, _LOADED, None)
        if before is None:
            # The session was opened outside a served request, so its data before any change is unknown.
            before = dict(fresh) if modified else dict(loaded)
        merge(cast(MutableMapping[str, Any], loaded), before, dict(fresh))
        loaded.modified, loaded.accessed = modified, accessed

    def ended(self, grant: Grant, error: BaseException | None) -> None:
        """Do nothing: the lock is kept until Flask has saved the session."""

    async def abegun(self, grant: Grant) -> None:
        self.begun(grant)

    async def aended(self, grant: Grant, error: BaseException | None) -> None:
        """See `ended`."""
