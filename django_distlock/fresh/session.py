"""Reads ``request.session`` again under the lock, and saves it before the release.

SessionMiddleware loads a session before the guard of the view waits, and saves it after the release. So if
several requests spend something that is in one session, all would see the data from before the first one.
This module reads the store again under the lock, and saves the view's changes while the lock is held.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.db import DatabaseError, connections, router, transaction
from django.http import Http404, HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.utils import timezone
from django.utils.module_loading import import_string

from distlock.engine.sans_io import TaskParker, arun
from distlock.errors import LockTimeout
from distlock.grants.grant import Grant
from distlock.terms import READ
from distlock.web.batch import Batch
from distlock.web.guard_marks import Guarded
from distlock.web.guard_stack import UpperGuard, session_mode
from distlock.web.sessions import merge, warn_of_reader
from django_distlock import private
from django_distlock.clients.idle_connections import when_idle
from django_distlock.conf import refreshes_session

#: Exceptions that Django answers with a status below 500, for which SessionMiddleware saves the session.
_ANSWERED = (Http404, PermissionDenied, BadRequest, SuspiciousOperation, MultiPartParserError, LockTimeout)

#: The attribute of a session with its `GuardedSession`.
_MARK = "_distlock"


def session_under(
    guarded: Guarded, request: HttpRequest, uppers: Sequence[UpperGuard]
) -> GuardedSession | None:
    """Return the session that a call of *guarded* has to compare and save, or None.

    It is not None if the setting is on, all requests of one session ask for the same lock, the store of the
    session can be read again, and no guard around this one handles the session. A guard for writing takes it
    over from one for reading.
    """
    mode = session_mode(guarded, uppers) if uppers else guarded.options.session_mode
    session: Any = getattr(request, "session", None)
    if session is None or mode is None or not refreshes_session():
        return None
    if not _is_of(session, "base", "SessionBase") or session.session_key is None:
        # No other request has a session that has no key yet.
        return None
    # A middleware may have wrapped it in a lazy object, which has attributes of its own.
    session = private.loaded_object(session)
    if _is_of(session, "signed_cookies"):
        # The session is in the client's cookie, which can't be read again.
        return None
    found: GuardedSession | None = vars(session).get(_MARK)
    if found is None or found.key != session.session_key:
        found = vars(session)[_MARK] = GuardedSession(session)
    if found.is_locked and (mode == READ or found.reader is None):
        return None
    # The guard may get no lock, so `begun` sets `reader`.
    found.next_reader = guarded.where if mode == READ else None
    return found


def _is_answered_by_framework(error: BaseException) -> bool:
    """Return whether REST framework or django-ninja answers *error* with a status below 500."""
    status = getattr(error, "status_code", 500)
    ours = any(one.__module__.partition(".")[0] in {"rest_framework", "ninja"} for one in type(error).__mro__)
    return ours and isinstance(status, int) and status < 500


class GuardedSession:
    """The session of one request, merged and saved under a lock. A `distlock.web.guard.Companion`."""

    def __init__(self, session: Any) -> None:
        self.key: str = session.session_key
        #: Whether a guard holds the lock now.
        self.is_locked = False
        #: Where the guard is, if it locks for reading; else None.
        self.reader: str | None = None
        #: The same of the guard that asks for its lock now.
        self.next_reader: str | None = None
        #: The batch that its request is a part of, or None.
        self.batch: Batch[Any] | None = None
        self._session = session
        self._store = SessionStore(session)
        #: The stored data, as far as this request knows; None before it is loaded.
        self._stored: Content | None = None
        #: The session under a reader's lock before the view changed it; None before it is loaded.
        self._unchanged: Content | None = None
        #: The data that the running transaction has written, or None.
        self._written: Content | None = None
        #: Whether the session was saved under the lock, which also extended its expiry.
        self._is_saved = False
        #: Whether SessionMiddleware saves the session for this response.
        self._is_answered = False
        self._raised: BaseException | None = None
        #: Whether the session has data to save after the COMMIT of the batch.
        self.is_pending = False
        #: Whether `ended` has nothing left to save: `save_left` or `_save_early` has done so.
        self._is_finished = False
        #: Whether the batch failed while the session had data to save, so that `ended` saves it alone.
        self._saves_alone = False
        #: Whether the lock is a row of the database, so that COMMIT and ROLLBACK end it.
        self._row_is_lock = False
        #: The stored data before `_save_early`, whose transaction may still be rolled back.
        self._before_early: Content | None = None
        self._begun_under: Grant | None = None

    # -- under the lock ----------------------------------------------------------------------------------

    def begun(self, grant: Grant) -> None:
        """Read the store again, and merge what other requests changed during the wait into the session.

        A second call with the same *grant* does nothing.
        """
        if self._begun_under is grant:
            return
        self._begun_under, self.reader = grant, self.next_reader
        self._written, self._raised, self._is_answered = None, None, False
        self.is_pending = self._is_finished = self._saves_alone = False
        self._row_is_lock, self._before_early = grant.held_by_transaction, None
        private.stamp_sessions(type(self._session))
        content = self._content
        if content is None:
            # The session is not loaded yet, so the view will load it under the lock.
            self._session.load = self._load_under_lock
            self._session.aload = sync_to_async(self._load_under_lock)
        else:
            fresh = self._read()
            if fresh is None:
                # The session was deleted: if the view writes to it, Django raises SessionInterrupted.
                return
            merge(content, self._before(content) if self._stored is None else self._stored, fresh)
            self._stored = fresh
            if self.reader is not None:
                self._unchanged = deepcopy(content)
        self._session.save = self._save_after_release
        self._session.asave = sync_to_async(self._save_after_release)
        self.is_locked = True

    def returned(self, status: int) -> None:
        """Note that the view has returned *status*. Save the session in its transaction if possible."""
        self._is_answered = status < 500
        if self.reader is not None or not self._has_to_be_saved():
            return
        if self._store.using is None:
            self._save_early()
            return
        connection = connections[self._store.using]
        if connection.in_atomic_block and not private.is_marked(connection) and self._store.save_row():
            self._written = deepcopy(self._content)

    def raised(self, error: BaseException) -> None:
        """Note that the view has raised *error*. This may save the session early."""
        self._raised = error
        self._is_answered = isinstance(error, _ANSWERED) or _is_answered_by_framework(error)
        if self.reader is None and self._store.using is None and self._has_to_be_saved():
            self._save_early()

    def ended(self, grant: Grant, error: BaseException | None) -> None:
        """Save what the transaction did not save, or take back the changes of a view that was not committed.

        Called after COMMIT or ROLLBACK, and before the release. If the view itself has raised *error*, its
        changes are saved if Django answers *error* with a status below 500.
        """
        if not self.is_locked:
            return
        try:
            if error is not None and error is not self._raised:
                self._take_back()
            elif self.reader is not None:
                stored = self._stored
                if not grant.lost and self._has_to_be_saved() and stored not in (None, self._content):
                    with suppress(private.session_update_error()):  # SessionMiddleware will raise it.
                        self._save_as_reader(self.reader, stored)
                        self._note_saved(deepcopy(self._content))
            elif self._written is not None and error is None:
                self._note_saved(self._written)
                self._store.committed(self._written, in_order=self.batch is None and not self._row_is_lock)
                if self._content != self._written and not grant.lost and self._store.save():
                    # An on_commit hook has changed the session.
                    self._note_saved(deepcopy(self._content))
            elif self.is_pending:
                self.save_left()
            elif self._saves_alone:
                if not grant.lost and self._has_to_be_saved() and self._stored is not None:
                    self._store.save_merged(self._stored)
                    self._note_saved(deepcopy(self._content))
            elif not self._is_finished and self._has_to_be_saved() and not grant.lost and self._store.save():
                self._note_saved(deepcopy(self._content))
        finally:
            self.is_locked, self.batch = False, None

    def _save_early(self) -> None:
        """Save the session now if the end of the transaction will also end the lock, which is a row."""
        if self._row_is_lock and self._store.save():
            self._before_early, self._is_finished = self._stored, True
            self._note_saved(deepcopy(self._content))

    def _save_as_reader(self, reader: str, stored: Content) -> None:
        """Save what the view of *reader* has changed, and keep what other readers have changed meanwhile.

        *stored*: the data in the store, as far as this request knows.
        """
        if self._content != self._unchanged:
            warn_of_reader(reader)
        # A ROLLBACK may undo this, so the view's own changes still count as not saved.
        self._stored = self._store.save_merged(stored)
        self._unchanged = deepcopy(self._content)

    async def abegun(self, grant: Grant) -> None:
        """Do what `begun` does, for an async view."""
        await sync_to_async(self.begun)(grant)

    async def aended(self, grant: Grant, error: BaseException | None) -> None:
        """Do what `ended` does, for an async view. A cancellation waits until the session is saved."""
        if not self._has_to_be_saved():
            self.ended(grant, error)
            return
        await arun(when_idle(partial(self.ended, grant, error), TaskParker(), lambda: False))

    def _load_under_lock(self) -> Content:
        """Load the session from its store. Replaces its ``load()``, which may read a replica or a cache."""
        fresh = self._read()
        if fresh is None:
            private.forget_session_key(self._session)
            return {}
        self._stored = self._unchanged = fresh
        return deepcopy(fresh)

    def _read(self) -> Content | None:
        pending = None if self.batch is None else self.batch.left_values.get(self._key_in_batch)
        return self._store.load() if pending is None else deepcopy(cast(Content, pending))

    def _before(self, content: Content) -> Content:
        """Return what *content* was when it was loaded, before the lock."""
        loaded = private.session_as_loaded(self._session)
        if loaded is None:
            # It is not known. If this request has already changed the session, pretend that it was empty:
            # then merge() keeps only those of its keys that the store lacks.
            return {} if self._session.modified else content
        return loaded

    @property
    def _content(self) -> Content | None:
        return private.session_content(self._session)

    def _has_to_be_saved(self) -> bool:
        """Return whether SessionMiddleware would save the session. False after a login: the key is new."""
        wanted = self._session.modified or settings.SESSION_SAVE_EVERY_REQUEST
        return bool(
            self.is_locked
            and wanted
            and self._is_answered
            and self._content is not None
            and self._session.session_key == self.key
        )

    def _note_saved(self, content: Content | None) -> None:
        self._stored, self._is_saved = content, True

    def _take_back(self) -> None:
        """Undo the view's changes to the session, because its transaction was not committed."""
        content = self._content
        if self._session.session_key != self.key or content is None:
            return
        if self._before_early is not None:
            self._stored = self._before_early
            self._store.put(self._stored)
        if self._stored is not None:
            merge(content, None, self._stored)
        self._session.modified = False

    # -- parts of a batch --------------------------------------------------------------------------------

    @property
    def _key_in_batch(self) -> object:
        return type(self._session), self.key

    def end_part(self, error: BaseException | None) -> None:
        """Hand the data that the part's savepoint has not saved on to the next part, or to `save_left`."""
        if self.batch is None or not self.is_locked or (error is not None and error is not self._raised):
            return
        if error is None and self._written is not None:
            self.batch.left_values.pop(self._key_in_batch, None)
        elif self._has_to_be_saved():
            self.batch.left_values[self._key_in_batch] = deepcopy(self._content)
            self.is_pending = True

    def note_batch_failed(self) -> None:
        """Let `ended` save what this request has handed on in the batch, which was rolled back."""
        self._saves_alone, self.is_pending = self.is_pending, False

    def save_left(self) -> None:
        """Save the data that the last part of the batch left, unless another part has done so."""
        assert self.batch is not None
        self.is_pending, self._is_finished = False, True
        self.batch.save_once(self._key_in_batch, self._store.put)
        self._note_saved(deepcopy(self._content))

    # -- after the release -------------------------------------------------------------------------------

    def _save_after_release(self, must_create: bool = False) -> None:
        """Save the session, unless its data was saved under the lock and has not changed since.

        Replaces its ``save()``, which SessionMiddleware calls after the release, and a view before it.
        """
        content = self._content
        if must_create or self._stored is None or self._session.session_key != self.key:
            self._store.save_as_django(must_create)
        elif self.is_locked and self.reader is not None:
            self._save_as_reader(self.reader, self._stored)
        elif self.is_locked:
            self._store.save_as_django()
        elif not self._is_saved or content != self._stored:
            self._store.save_merged(self._stored)
            self._stored = deepcopy(self._content)


logger = logging.getLogger("distlock")

#: The data of a session, as its store loads it.
Content = dict[str, Any]


def watch_sessions() -> None:
    """If guards refresh the sessions of this site, let each keep a copy of what it loads."""
    if refreshes_session() and _has_sessions() and not keeps_sessions_in_cookies():
        private.stamp_sessions(import_string(f"{settings.SESSION_ENGINE}.SessionStore"))


def _has_sessions() -> bool:
    return any("SessionMiddleware" in name for name in settings.MIDDLEWARE)


def keeps_sessions_in_cookies() -> bool:
    """Return whether the site has sessions, and stores them in cookies."""
    if not _has_sessions():
        return False
    store = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    cookies = import_string("django.contrib.sessions.backends.signed_cookies.SessionStore")
    return issubclass(store, cookies)


def _is_of(session: object, backend: str, name: str = "SessionStore") -> bool:
    # If the module is not imported, no session is of its class.
    module = sys.modules.get(f"django.contrib.sessions.backends.{backend}")
    return module is not None and isinstance(session, getattr(module, name))


class SessionStore:
    """The store of one session, under the key that the session has now."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._class: Any = type(session)
        self._key: str = session.session_key
        self._is_cached = _is_of(session, "cached_db")
        self._has_rows = _is_of(session, "db")
        #: The database alias where the session's row is written; None: no transaction can write the session.
        self.using: str | None = None
        if self._has_rows and not (self._is_cached and not self._is_own("save")):
            self.using = router.db_for_write(session.model)

    def _is_own(self, method: str) -> bool:
        """Return whether *method* is Django's own."""
        function = inspect.unwrap(getattr(self._class, method))
        return str(function.__module__).startswith("django.contrib.sessions.")

    def load(self) -> Content | None:
        """Return the stored data; None: the session was deleted or has expired."""
        if self.using is not None and self._is_own("load"):
            rows = self._session.model.objects.using(self.using)
            row = rows.filter(session_key=self._key, expire_date__gt=timezone.now()).first()
            return None if row is None else self._session.decode(row.session_data)
        created: list[object] = []
        other = self._class(self._key)
        # load() calls create() if the session's file has expired.
        other.create = lambda: created.append(other)
        content: Content = other.load()
        return None if created or other.session_key is None else content

    def save_as_django(self, must_create: bool = False) -> None:
        """Save the session as its class does."""
        self._class.save(self._session, must_create)

    def save(self) -> bool:
        """Save the session. Return False if it was deleted: then SessionMiddleware raises when it saves."""
        return self._is_saved_by(self._class)

    def save_row(self) -> bool:
        """Save the session's row as `save` does, but not to the cache: after COMMIT `committed` does that."""
        database = sys.modules.get("django.contrib.sessions.backends.db")
        return self._is_saved_by(database.SessionStore if database and self._is_cached else self._class)

    def _is_saved_by(self, cls: Any) -> bool:
        try:
            cls.save(self._session)
        except private.session_update_error():
            return False
        return True

    def committed(self, content: Content, *, in_order: bool) -> None:
        """Write *content*, just committed, to the cache, if there is one.

        *in_order*: whether the lock still keeps other requests from saving; if not, delete the entry instead.
        """
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
        """Save *content*, which another request may have left. Log a warning if the session was deleted."""
        other = self._class(self._key)
        private.put_session_content(other, content)
        try:
            other.save()
        except private.session_update_error():
            logger.warning("A session was deleted while a view under a lock changed it.")

    def save_merged(self, before: Content) -> Content:
        """Save what differs from *before*, and keep what other requests have written to the rest.

        Return the data that was stored until then, or *before* if the session was deleted.
        """
        if self.using is None:
            fresh = self._merge(before)
            self.save_as_django()
            return fresh
        gone: Any = private.session_update_error()
        rows = self._session.model.objects.using(self.using).filter(session_key=self._key)
        try:
            with transaction.atomic(using=self.using):
                # This UPDATE locks the row, so other requests that write it wait for the COMMIT.
                if not rows.update(expire_date=self._session.get_expiry_date()):
                    raise gone
                fresh = self._merge(before)
                self.save_as_django()
        except DatabaseError as error:
            # Django's own save() raises this, too.
            raise gone from error
        return fresh

    def _merge(self, before: Content) -> Content:
        content, fresh = private.session_content(self._session), self.load()
        if content is None or fresh is None:
            return before
        merge(content, before, fresh, ours_first=True)
        return fresh
