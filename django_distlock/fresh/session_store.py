"""Where ``request.session`` is kept: how to read it again, and how to save it at which moment.

Rows of a table are read from the database that is written to, past a cache in front of it.
"""

from __future__ import annotations

import inspect
import logging
import sys
from typing import Any

from django.conf import settings
from django.core.cache import caches
from django.db import DatabaseError, router, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from distlock.web.sessions import merge
from django_distlock import private
from django_distlock.conf import refreshes_session

logger = logging.getLogger("distlock")

#: The data of a session, as its store loads it.
Content = dict[str, Any]


def store_of(session: Any) -> SessionStore | None:
    """Return the store of *session*; None where the client's cookie is the store, and nothing can be read."""
    if _is_of(session, "signed_cookies"):
        return None
    return SessionStore(session)


def watch_sessions() -> None:
    """Let each session of the site keep a copy of what it loads, from the first request on."""
    if refreshes_session() and _has_sessions() and not keeps_sessions_in_cookies():
        private.stamp_sessions(import_string(f"{settings.SESSION_ENGINE}.SessionStore"))


def _has_sessions() -> bool:
    return any("SessionMiddleware" in name for name in settings.MIDDLEWARE)


def keeps_sessions_in_cookies() -> bool:
    """Whether the site has sessions, and each is kept by its client."""
    if not _has_sessions():
        return False
    store = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    cookies = import_string("django.contrib.sessions.backends.signed_cookies.SessionStore")
    return issubclass(store, cookies)


def _is_of(session: object, backend: str) -> bool:
    # A store that was never imported keeps no session.
    module = sys.modules.get(f"django.contrib.sessions.backends.{backend}")
    return module is not None and isinstance(session, module.SessionStore)


class SessionStore:
    """The store of one session, under the key that the session has now."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._class: Any = type(session)
        self._key: str = session.session_key
        self._is_cached = _is_of(session, "cached_db")
        self._has_rows = _is_of(session, "db")
        #: The database alias where its row is written; None: it has no row that a transaction could write.
        self.using: str | None = None
        if self._has_rows and not (self._is_cached and not self._is_own("save")):
            self.using = router.db_for_write(session.model)

    def _is_own(self, method: str) -> bool:
        """Whether *method* is Django's own."""
        function = inspect.unwrap(getattr(self._class, method))
        return str(function.__module__).startswith("django.contrib.sessions.")

    def load(self) -> Content | None:
        """Return what is in the store now; None: the session is gone."""
        if self.using is not None and self._is_own("load"):
            rows = self._session.model.objects.using(self.using)
            row = rows.filter(session_key=self._key, expire_date__gt=timezone.now()).first()
            return None if row is None else self._session.decode(row.session_data)
        created: list[object] = []
        other = self._class(self._key)
        # A file that has expired is replaced by a new one.
        other.create = lambda: created.append(other)
        content: Content = other.load()
        return None if created or other.session_key is None else content

    def save_as_django(self, must_create: bool = False) -> None:
        """Save the session as its class does."""
        self._class.save(self._session, must_create)

    def save(self) -> bool:
        """Save the session; False: it is gone, which Django tells when it saves it."""
        return self._is_saved_by(self._class)

    def save_row(self) -> bool:
        """`save`, in a transaction that may yet be rolled back: the cache has to wait for `committed`."""
        return self._is_saved_by(_database_store() if self._is_cached else self._class)

    def _is_saved_by(self, cls: Any) -> bool:
        try:
            cls.save(self._session)
        except private.session_update_error():
            return False
        return True

    def committed(self, content: Content, *, in_order: bool) -> None:
        """The row has *content* for good. *in_order*: nobody has written it since."""
        if not self._is_cached:
            return
        cache = caches[settings.SESSION_CACHE_ALIAS]
        key = self._class.cache_key_prefix + self._key
        try:
            if in_order:
                cache.set(key, content, self._session.get_expiry_age())
            else:
                cache.delete(key)
        except Exception:
            logger.exception("The session could not be saved to the cache %r.", settings.SESSION_CACHE_ALIAS)

    def put(self, content: Content) -> None:
        """Save *content*, which another request of the session may have left, if it is not gone."""
        other = self._class(self._key)
        private.put_session_content(other, content)
        try:
            other.save()
        except private.session_update_error():
            logger.warning("A session was deleted while a view under a lock changed it.")

    def save_merged(self, before: Content) -> None:
        """Save of the session what differs from *before*, and leave the rest as others have written it."""
        if self.using is None:
            self._merge(before)
            self.save_as_django()
            return
        gone: Any = private.session_update_error()
        rows = self._session.model.objects.using(self.using).filter(session_key=self._key)
        try:
            with transaction.atomic(using=self.using):
                # Another request that writes the row waits until all of this is committed.
                if not rows.update(expire_date=self._session.get_expiry_date()):
                    raise gone
                self._merge(before)
                self.save_as_django()
        except DatabaseError as error:
            # As Django's own save() has it.
            raise gone from error

    def _merge(self, before: Content) -> None:
        content, fresh = private.session_content(self._session), self.load()
        if content is not None and fresh is not None:
            merge(content, before, fresh, ours_first=True)


def _database_store() -> Any:
    return sys.modules["django.contrib.sessions.backends.db"].SessionStore
