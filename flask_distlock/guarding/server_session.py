"""``flask.session`` of a server-side interface, such as Flask-Session, under the lock of a guard.

Nobody else changes what is in a cookie, but what is on the server others change. Flask opens the session
before the guard of the view waits, so the guard opens it once more when it has the lock. Flask saves it
inside of ``wsgi_app``, and a view keeps its lock until that returns.
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

#: Where a session keeps what it has loaded.
_LOADED = "_distlock_loaded"


def session_under(guarded: Guarded, uppers: Sequence[UpperGuard] = ()) -> ServerSession | None:
    """Return what compares the session for a view under *guarded*; None where nothing can or need be."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    if not app.config[REFRESH_SESSION]:
        return None
    loaded: Any = session._get_current_object()  # type: ignore[attr-defined]
    if getattr(loaded, "sid", None) is None or not serialises_session(guarded, uppers):
        return None
    return ServerSession(app, loaded)


def stamp_session(app: Flask) -> None:
    """Keep a copy of what the session of the current request has loaded, before a hook changes it."""
    if not app.config[REFRESH_SESSION]:
        return
    loaded: Any = session._get_current_object()  # type: ignore[attr-defined]
    if getattr(loaded, "sid", None) is not None:
        modified, accessed = loaded.modified, loaded.accessed
        setattr(loaded, _LOADED, deepcopy(dict(loaded)))
        loaded.modified, loaded.accessed = modified, accessed


class ServerSession:
    """The session of one request, kept on the server. A `distlock.web.guard.Companion`."""

    def __init__(self, app: Flask, loaded: Any) -> None:
        self._app = app
        self._loaded = loaded

    def begun(self, grant: Grant) -> None:
        """Set in the session what other requests have changed while the lock was awaited."""
        loaded = self._loaded
        fresh: Any = self._app.session_interface.open_session(self._app, request)
        if fresh is None or fresh.sid != loaded.sid:
            # It is new, or it is gone.
            return
        modified, accessed = loaded.modified, loaded.accessed
        before = getattr(loaded, _LOADED, None)
        if before is None:
            # It was opened outside of a request that Flask serves: what was written since is not known.
            before = dict(fresh) if modified else dict(loaded)
        merge(cast(MutableMapping[str, Any], loaded), before, dict(fresh))
        loaded.modified, loaded.accessed = modified, accessed

    def ended(self, grant: Grant, error: BaseException | None) -> None:
        """Do nothing: Flask saves the session, and the lock is kept until then."""

    async def abegun(self, grant: Grant) -> None:
        self.begun(grant)

    async def aended(self, grant: Grant, error: BaseException | None) -> None:
        """See `ended`."""
