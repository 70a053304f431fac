"""The login, where it changes while the process lives: it is asked for before each connection."""

from __future__ import annotations

import inspect
from typing import Any

from distlock.backends.redis.address import Address
from distlock.backends.redis.aside import Aside
from distlock.errors import ConfigurationError


class Credentials:
    """What *provider* gives: a callable, or an object with ``get_credentials()`` as those of redis-py.

    It returns a password, or a tuple of user and password, or of the password alone. It is called in a thread
    of its own, because it may ask a server and takes no deadline. Belongs to one process.
    """

    def __init__(self, provider: object) -> None:
        """Raises `ConfigurationError` for what can't give any."""
        request: Any = getattr(provider, "get_credentials", provider)
        if isinstance(provider, type) or not callable(request):
            raise ConfigurationError(
                f"credential_provider is {_a(provider)}. It has to be a function without arguments, or an "
                "object with the method get_credentials(), as redis.CredentialProvider. Either returns the "
                "password, or a tuple of user and password."
            )
        if inspect.iscoroutinefunction(request):
            raise ConfigurationError(
                "credential_provider is async, and nobody could await it: it is called in a thread of its "
                "own. Write 'def'."
            )
        self._ask = request
        self._aside = Aside(self._asked, "distlock-redis-credentials")

    def login(self, deadline: float) -> tuple[str, ...]:
        """What AUTH is told. Raises TimeoutError after *deadline*, RuntimeError where it gives none."""
        return self._aside.answer(deadline, "its credential_provider did not return in time")

    def _asked(self) -> tuple[str, ...]:
        try:
            given = self._ask()
        except BaseException as error:
            # Whatever it is, it may not pass for an answer of the server.
            raise RuntimeError(f"its credential_provider raised {type(error).__name__}: {error}") from error
        login = (given,) if isinstance(given, str) else given
        if not (
            isinstance(login, tuple | list)
            and 1 <= len(login) <= 2
            and all(isinstance(part, str) and part for part in login)
        ):
            raise RuntimeError(
                f"its credential_provider returned {_a(given)}, and no password or tuple of user and password"
            )
        return tuple(login)


def credentials_for(address: Address, provider: object) -> Credentials | None:
    """Those of *provider*, if it is one. Raises `ConfigurationError`, also where the URL has a login, too."""
    if provider is None:
        return None
    if address.login:
        raise ConfigurationError(
            f"The Redis server at {address.shown} has a user or a password in its URL, and a "
            "credential_provider. Take one of them out."
        )
    return Credentials(provider)


def _a(value: object) -> str:
    """The kind of *value*: itself it may be a secret."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
