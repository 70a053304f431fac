"""Reads ``flask.session`` again under the lock, if the server stores it, as with Flask-Session.

Flask opens the session before the guard of the view waits, and other requests may change the stored session
meanwhile. So the guard opens it again under the lock. Flask saves the session inside ``wsgi_app``, and a view
keeps its lock until ``wsgi_app`` returns.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, cast

from flask import Flask, Response, after_this_request, current_app, request, session

from distlock.grants.grant import Grant
from distlock.terms import READ
from distlock.web.guard_marks import Guarded
from distlock.web.guard_stack import UpperGuard, session_mode
from distlock.web.sessions import REFRESH_SESSION, merge, warn_of_reader

#: The attribute of a session with a copy of the data that was loaded into it.
_LOADED = "_distlock_loaded"
#: The attribute of a session that is True if a guard has locked it for writing.
_IS_LOCKED = "_distlock_locked"


def session_under(guarded: Guarded, uppers: Sequence[UpperGuard] = ()) -> ServerSession | None:
    """Return the server-side session that *guarded* has to read again under its lock, or None.

    None: the setting switches this off, the session is in a cookie, or the lock does not keep the requests of
    one session apart. *uppers*: the guards above *guarded* in its stack.
    """
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    if not app.config[REFRESH_SESSION]:
        return None
    loaded: Any = session._get_current_object()  # type: ignore[attr-defined]
    mode = session_mode(guarded, uppers)
    if getattr(loaded, "sid", None) is None or mode is None:
        return None
    return ServerSession(app, loaded, guarded.where if mode == READ else None)


def stamp_session(app: Flask) -> None:
    """Copy the loaded data of the current request's session, before hooks change them.

    Does nothing for a session in a cookie.
    """
    if not app.config[REFRESH_SESSION]:
        return
    loaded: Any = session._get_current_object()  # type: ignore[attr-defined]
    if getattr(loaded, "sid", None) is not None:
        modified, accessed = loaded.modified, loaded.accessed
        setattr(loaded, _LOADED, deepcopy(dict(loaded)))
        loaded.modified, loaded.accessed = modified, accessed


class ServerSession:
    """The server-side session of one request. A `distlock.web.guard.Companion`."""

    def __init__(self, app: Flask, loaded: Any, reader: str | None) -> None:
        self._app = app
        self._loaded = loaded
        #: Where the guard is, if it locks for reading; else None.
        self._reader = reader

    def begun(self, grant: Grant) -> None:
        """Read the store again, and merge what other requests changed during the wait into the session."""
        loaded = self._loaded
        fresh: Any = self._app.session_interface.open_session(self._app, request)
        if fresh is None or fresh.sid != loaded.sid:
            # The session was not stored yet, or was deleted from the store.
            return
        modified, accessed = loaded.modified, loaded.accessed
        before = getattr(loaded, _LOADED, None)
        if before is None:
            # `stamp_session` has not run, as in test_request_context(): the data before changes are unknown.
            before = dict(fresh) if modified else dict(loaded)
        merge(cast(MutableMapping[str, Any], loaded), before, dict(fresh))
        unchanged = deepcopy(dict(loaded))
        loaded.modified, loaded.accessed = modified, accessed
        if self._reader is None:
            setattr(loaded, _IS_LOCKED, True)
        else:
            after_this_request(partial(self._warn_if_changed, self._reader, unchanged))

    def _warn_if_changed(self, reader: str, unchanged: dict[str, Any], response: Response) -> Response:
        if not getattr(self._loaded, _IS_LOCKED, False) and dict(self._loaded) != unchanged:
            warn_of_reader(reader)
        return response

    def ended(self, grant: Grant, error: BaseException | None) -> None:
        """Do nothing: the lock is kept until Flask has saved the session."""

    async def abegun(self, grant: Grant) -> None:
        self.begun(grant)

    async def aended(self, grant: Grant, error: BaseException | None) -> None:
        """See `ended`."""
