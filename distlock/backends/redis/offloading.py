"""Calls of functions that take no deadline, in threads: name resolution and credential providers."""

from __future__ import annotations

import inspect
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from distlock import clock
from distlock.backends.redis.address import RedisAddress
from distlock.errors import ConfigurationError

T = TypeVar("T")

#: Pairs of address family and socket address.
Addresses = list[tuple[int, Any]]


class BlockingCall(Generic[T]):
    """A function that is called in a thread, which gets the name *name*. Concurrent callers share one call.

    A forked child needs another `BlockingCall`.
    """

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self._name = name
        self._mutex = threading.Lock()
        self._running: Future[T] | None = None

    def result(self, deadline: float, late: str) -> T:
        """Return what the function returns, or raise what it raises.

        Raises TimeoutError(*late*) after *deadline*, and RuntimeError if no thread can be started. The thread
        ends only when the function returns.
        """
        with self._mutex:
            running = self._running
            if running is None:
                running = Future()
                threading.Thread(target=self._run, args=(running,), name=self._name, daemon=True).start()
                self._running = running
        try:
            return running.result(max(0.0, deadline - clock.now()))
        except TimeoutError:
            if running.done():
                # The call has just ended, or the function itself raised a TimeoutError.
                return running.result()
            raise TimeoutError(late) from None

    def _run(self, running: Future[T]) -> None:
        failure: BaseException | None = None
        try:
            result = self._function()
        except BaseException as error:
            failure = error
        with self._mutex:
            self._running = None
        if failure is None:
            running.set_result(result)
        else:
            running.set_exception(failure)


class Resolver:
    """The resolver of the addresses of one host and port. A forked child needs another `Resolver`."""

    def __init__(self, host: str, port: int) -> None:
        self._look_up = partial(_look_up, host, port)
        self._call: BlockingCall[Addresses] = BlockingCall(self._look_up, "distlock-resolver")

    def resolve(self, deadline: float) -> Addresses:
        """Return the addresses to connect to. Raises OSError, and TimeoutError after *deadline*."""
        try:
            return self._look_up(socket.AI_NUMERICHOST)
        except OSError:
            pass  # The host is a name.
        return self._call.result(deadline, "its name was not resolved in time")


def _look_up(host: str, port: int, flags: int = 0) -> Addresses:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]


class Credentials:
    """A login that may change while the process lives. Each new connection asks *provider* for it.

    *provider* is a callable, or an object with ``get_credentials()`` like redis-py's providers. It returns a
    password, a tuple of user and password, or a tuple with only a password. *provider* runs in a thread,
    because it may ask a server and can't be given a deadline. A forked child needs another `Credentials`.
    """

    def __init__(self, provider: object) -> None:
        """Raises `ConfigurationError` if *provider* can't be called, or is async."""
        ask: Any = getattr(provider, "get_credentials", provider)
        if isinstance(provider, type) or not callable(ask):
            raise ConfigurationError(
                f"credential_provider is {_kind_of(provider)}. It has to be a function without arguments, or "
                "an object with the method get_credentials(), as redis.CredentialProvider. Either returns "
                "the password, or a tuple of user and password."
            )
        if inspect.iscoroutinefunction(ask):
            raise ConfigurationError(
                "credential_provider is async, but distlock calls it in a thread that has no event loop. "
                "Write 'def' in the place of 'async def'."
            )
        self._ask = ask
        self._call = BlockingCall(self._checked_login, "distlock-redis-credentials")

    def login(self, deadline: float) -> tuple[str, ...]:
        """Return the arguments of AUTH.

        Raises TimeoutError after *deadline*, and RuntimeError if the provider raises or returns no login.
        """
        return self._call.result(deadline, "its credential_provider did not return in time")

    def _checked_login(self) -> tuple[str, ...]:
        try:
            given = self._ask()
        except BaseException as error:
            # A RuntimeError, because an OSError would look like a failure of the Redis server.
            raise RuntimeError(f"its credential_provider raised {type(error).__name__}: {error}") from error
        login = (given,) if isinstance(given, str) else given
        if not (
            isinstance(login, tuple | list)
            and 1 <= len(login) <= 2
            and all(isinstance(part, str) and part for part in login)
        ):
            raise RuntimeError(
                f"its credential_provider returned {_kind_of(given)}, and no password or tuple of user and "
                "password"
            )
        return tuple(login)


def credentials_for(address: RedisAddress, provider: object) -> Credentials | None:
    """Return the credentials of *provider*, or None without a provider. A forked child calls this again.

    Raises `ConfigurationError` if *provider* can't be used, or if the URL has a login, too.
    """
    if provider is None:
        return None
    if address.login:
        raise ConfigurationError(
            f"The Redis server at {address.shown} has a user or a password in its URL, and a "
            "credential_provider. Take one of them out."
        )
    return Credentials(provider)


def _kind_of(value: object) -> str:
    """Describe *value* by its type, because the value itself may be a secret."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
