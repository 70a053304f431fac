"""The clients of one site by alias, each made on first use.

`GuardTerms` are the options of a guard, completed by the settings of its alias.
"""

from __future__ import annotations

import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack
from weakref import WeakKeyDictionary

from distlock import metrics
from distlock.backends.base import refuse_lacking
from distlock.connecting import connect
from distlock.engine.events import OnLifted, OnLost
from distlock.errors import ConfigurationError
from distlock.grants.grant import OnReleaseRequested
from distlock.listening import Listened, Listener, check_listener
from distlock.locks.client import HoldOptions, LockOptions, Locks, takes
from distlock.locks.lock import Lock, ReadLock, Semaphore
from distlock.operate.command_line import Typed
from distlock.service_identity import identity
from distlock.terms import EXCLUSIVE, PERMIT, Terms
from distlock.web.guard_marks import Guarded
from distlock.web.guard_options import GuardOptions, refuse_unable
from distlock.web.settings.aliases import AliasSettings
from distlock.web.settings.database import Look, RowAcquirer
from distlock.web.settings.dummy import DummyLocks
from distlock.web.settings.problems import DEFAULT_ALIAS

logger = logging.getLogger("distlock")

#: Arguments of `connect` whose settings have another name.
_SETTINGS = {"url": "LOCATION", "epoch": "FENCE_EPOCH", "listener": "METRICS"}
#: Arguments of `connect` for which both faces have a signal.
_SIGNALS = {
    "on_lost": "lock_lost",
    "on_lifted": "fence_lifted",
    "on_release_requested": "lock_release_requested",
}


class Clients:
    """The clients of one site by alias, which its threads share.

    *read*: returns the settings, when they are first needed. *make*: makes the client of an alias: see
    `make_client`. *make_standby*: makes the client for ``ON_BACKEND_DOWN``: see `make_rows`. *fenced_in*:
    returns the framework's name of the database that ``fence=`` means, where True is the default one; None
    for False. *command*: how an operator calls ``distlock`` with these settings; "": that is not possible.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, AliasSettings]],
        make: Callable[[AliasSettings], Locks] | None = None,
        make_standby: Callable[[AliasSettings], Locks] | None = None,
        fenced_in: Callable[[bool | str], str | None] | None = None,
        command: str = "",
    ) -> None:
        self._read = read
        self._make = make or make_client
        self._make_standby = make_standby or make_rows
        self._fenced_in = fenced_in or (lambda fence: str(fence) if fence else None)
        self._command = command
        self._mutex = threading.RLock()
        self._settings: Mapping[str, AliasSettings] | None = None
        self._clients: dict[str, Locks] = {}
        self._standbys: dict[str, Locks] = {}
        self._terms: WeakKeyDictionary[Guarded, GuardTerms] = WeakKeyDictionary()

    def __getitem__(self, alias: str) -> Locks:
        """Return the client of *alias*. Raises `ConfigurationError`. Connects to nothing."""
        client = self._clients.get(alias)
        if client is not None:
            return client
        settings = self.settings(alias)
        with self._mutex:
            if alias not in self._clients:
                made = self._clients[alias] = self._make(settings)
                made.namespace.identity = _identity(settings)
                if self._command and settings.capabilities.several_processes:
                    made.namespace.typed = typed_in_site(self._command, alias)
            return self._clients[alias]

    def aliases(self) -> tuple[str, ...]:
        """Return the aliases in the order of the settings. Raises `ConfigurationError`."""
        return tuple(self._known())

    def terms(self, guarded: Guarded) -> GuardTerms:
        """Return the terms of *guarded*. Raises `ConfigurationError`. Connects to nothing."""
        # If `reset` is called meanwhile, the new terms go into the old mapping, which nobody reads any more.
        known = self._terms
        terms = known.get(guarded)
        if terms is None:
            options = guarded.options
            settings = self.settings(options.alias)
            fenced_in = self._fenced_in(fence_for(settings, options))
            standby = self.standby(options.alias)
            client = self[options.alias]
            usual = client.namespace.terms
            lock = Terms(
                usual.ttl if options.ttl is None else options.ttl,
                usual.max_hold if options.max_hold is None else options.max_hold,
                guarded.where,
                # Only a fenced guard may begin before the lock service has confirmed the hand-off: it waits
                # for that before COMMIT, and the fence refuses late writes.
                on_push=fenced_in is not None and options.mode == EXCLUSIVE,
                mode=options.mode,
                limit=options.limit or 1,
            )
            terms = known[guarded] = GuardTerms(client, lock, settings.max_names, fenced_in, standby)
        return terms

    def standby(self, alias: str) -> Locks | None:
        """Return the client whose rows replace fenced locks of *alias* in an outage; None: they fail."""
        settings = self.settings(alias)
        if settings.on_backend_down != "run":
            return None
        with self._mutex:
            if alias not in self._standbys:
                self._standbys[alias] = self._make_standby(settings)
            return self._standbys[alias]

    def settings(self, alias: str) -> AliasSettings:
        """Return the settings of *alias*. Raises `ConfigurationError` if there is no such alias."""
        known = self._known()
        if alias not in known:
            others = ", ".join(map(repr, known))
            raise ConfigurationError(
                f"DISTLOCK has no alias {alias!r}, only {others}. Add it, or name one of these."
            )
        return known[alias]

    def _known(self) -> Mapping[str, AliasSettings]:
        settings = self._settings
        if settings is None:
            settings = self._settings = self._read()
        return settings

    def reset(self) -> None:
        """Close the clients. The next use of an alias reads the settings again."""
        with self._mutex:
            clients = [*self._clients.values(), *self._standbys.values()]
            self._clients, self._standbys, self._settings = {}, {}, None
            self._terms = WeakKeyDictionary()
        for client in clients:
            client.close()


def typed_in_site(command: str, alias: str | None) -> Typed:
    """Return how an operator types ``distlock`` for *alias*, with a command that knows the settings."""
    return Typed(command, () if alias in {None, DEFAULT_ALIAS} else (("--alias", str(alias)),))


def _identity(settings: AliasSettings) -> object:
    """Return the identity of the locks of an alias. Aliases with equal identities have the same locks."""
    row = settings.fence if settings.row_is_lock else None
    return identity(settings.location, settings.backend, settings.prefix, settings.options, row)


def make_client(
    settings: AliasSettings,
    on_lost: OnLost | None = None,
    on_lifted: OnLifted | None = None,
    look: Look | None = None,
    on_release_requested: OnReleaseRequested | None = None,
) -> Locks:
    """Return the client of *settings*. *on_lost*, *on_lifted*, *on_release_requested*: see `connect`.

    *look*: see `Look`, for locks that are rows.
    Raises `ConfigurationError`; connects to nothing.
    """
    if settings.scheme == "dummy":
        return DummyLocks(
            settings.prefix, ttl=settings.ttl, timeout=settings.timeout, epoch=settings.fence_epoch
        )
    if settings.row_is_lock:
        return make_rows(settings, look)
    listener = _listener(settings)
    try:
        _refuse_arguments_of_connect(settings.options)
        client = connect(
            settings.location,
            backend=settings.backend,
            prefix=settings.prefix,
            ttl=settings.ttl,
            timeout=settings.timeout,
            max_hold=settings.max_hold,
            max_waiters=settings.max_waiters,
            max_waiters_total=settings.max_waiters_total,
            epoch=settings.fence_epoch,
            turn=settings.turn,
            on_lost=on_lost,
            on_lifted=on_lifted,
            on_release_requested=on_release_requested,
            listener=listener,
            **settings.options,
        )
        if settings.fence:
            refuse_lacking(settings.scheme, settings.capabilities, "fence", "FENCE")
    except (ConfigurationError, TypeError) as error:
        # TypeError: an option has the name of an argument of another library.
        raise ConfigurationError(f"DISTLOCK[{settings.alias!r}]: {error}") from error
    return client


def _refuse_arguments_of_connect(options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(connect).parameters
    for word in options:
        # A backend may have an option that is called as connect() calls all of them.
        if word not in parameters or parameters[word].kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if word in _SIGNALS:
            remedy = f"Connect to the signal {_SIGNALS[word]} instead."
        else:
            remedy = f"Write it as {_SETTINGS.get(word, word.upper())!r} beside OPTIONS."
        raise ConfigurationError(f"{word!r} in OPTIONS is no option of a backend. {remedy}")


def make_rows(settings: AliasSettings, look: Look | None = None) -> Locks:
    """Return the client whose locks are rows. *look*: see `Look`. Connects to nothing."""
    listener, rows = _listener(settings), RowAcquirer(settings, look)
    return Locks(rows if listener is None else Listened(rows, listener), settings.timeout)


def _listener(settings: AliasSettings) -> Listener | None:
    try:
        if callable(settings.metrics):
            listener = settings.metrics(settings.alias)
            check_listener(listener)
            return listener
        return None if settings.metrics is None else metrics.listener(settings.metrics, settings.alias)
    except ConfigurationError as error:
        raise ConfigurationError(f"DISTLOCK[{settings.alias!r}]['METRICS']: {error}") from error


@dataclass(frozen=True, slots=True)
class GuardTerms:
    """The options that the calls of one guard share as long as the settings are the same."""

    client: Locks
    lock: Terms
    max_names: int
    #: The framework's name of the fenced database; None: there is none.
    fenced_in: str | None
    #: The client whose rows replace fenced locks in an outage; None: calls fail then.
    standby: Locks | None


def fence_for(settings: AliasSettings, options: GuardOptions) -> bool | str:
    """Return the database that a guard fences: True is the default one, False none.

    Raises `ConfigurationError` if the backend can't do what the guard asks for.
    """
    refuse_unable(settings, options.mode, str(options))
    if options.mode == PERMIT:
        return False
    if not settings.row_is_lock:
        if options.fence:
            refuse_lacking(settings.scheme, settings.capabilities, "fence", str(options))
        return settings.fence if options.fence is None else options.fence
    for word in ("ttl", "max_hold"):
        if getattr(options, word) is not None:
            raise ConfigurationError(
                f"{options}: DISTLOCK[{settings.alias!r}] has the backend 'database', where a lock has no "
                f"{word}: it ends with its transaction. Leave {word}= out."
            )
    if options.fence is None or options.fence is True or options.fence == settings.fence:
        return settings.fence
    raise ConfigurationError(
        f"{options}: DISTLOCK[{settings.alias!r}] has the backend 'database', where the fence's row is the "
        "lock: leave fence= out. Another database is another alias, with its name as LOCATION."
    )


class DefaultAlias(ABC):
    """Clients by alias, with methods of a client that use the default alias."""

    @abstractmethod
    def __getitem__(self, alias: str) -> Locks:
        """Return the client of *alias*. Raises `ConfigurationError`. Connects to nothing."""

    @takes(LockOptions)
    def read_lock(self, *names: str, **options: Unpack[LockOptions]) -> ReadLock:
        """Return a lock that readers of the default alias share: see `distlock.Locks.read_lock`.

        Example::

            with locks.read_lock("catalogue", timeout=2):
                print("nobody writes")
        """
        return self[DEFAULT_ALIAS].read_lock(*names, **options)

    @takes(LockOptions)
    def write_lock(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """Return an exclusive lock, as `lock` does: see `distlock.Locks.write_lock`.

        Example::

            with locks.write_lock("catalogue") as grant:
                grant.downgrade()
        """
        return self[DEFAULT_ALIAS].write_lock(*names, **options)

    @takes(HoldOptions)
    def semaphore(
        self, name: str, *, limit: int, permits: int = 1, **options: Unpack[HoldOptions]
    ) -> Semaphore:
        """Return a semaphore of the default alias: see `distlock.Locks.semaphore`.

        Example::

            with locks.semaphore("gateway", limit=10):
                print("at most ten at a time")
        """
        return self[DEFAULT_ALIAS].semaphore(name, limit=limit, permits=permits, **options)
