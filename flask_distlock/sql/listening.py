"""One listener for each event of a ``db.session``, however many apps share it, as in a test suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from flask import Flask, current_app, has_app_context

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

    from flask_distlock.sql.sessions import Sessions

#: Methods of `Sessions`.
_EVENTS = ("after_begin", "before_commit", "after_commit", "after_transaction_end")

_Followers = WeakKeyDictionary[Flask, "Sessions"]
_followers: WeakKeyDictionary[scoped_session[Session], _Followers] = WeakKeyDictionary()

#: Those in whose apps a session was used.
_of: WeakKeyDictionary[Session, WeakSet[Sessions]] = WeakKeyDictionary()


def follow(session: scoped_session[Session], app: Flask, sessions: Sessions) -> None:
    """Tell *sessions* what becomes of *session* in the contexts of *app*."""
    followers = _followers.get(session)
    if followers is None:
        from sqlalchemy import event

        followers = _followers[session] = WeakKeyDictionary()
        for name in _EVENTS:
            event.listen(session, name, _teller(name, followers))
    # A proxy can't be remembered.
    followers[getattr(app, "_get_current_object", lambda: app)()] = sessions


def _teller(name: str, followers: _Followers) -> Callable[..., None]:
    def tell(session: Session, *args: Any) -> None:
        for one in tuple(_those_of(session, followers)):
            getattr(one, name)(session, *args)

    return tell


def _those_of(session: Session, followers: _Followers) -> Iterable[Sessions]:
    """Those of *followers* in whose apps *session* was used; all of them where none is known."""
    known = _of.setdefault(session, WeakSet())
    if has_app_context():
        app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
        if app in followers:
            known.add(followers[app])
    return known or followers.values()
