"""Where a command finds its locks: at a URL, or in the settings of its site."""

from __future__ import annotations

import getpass
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from distlock.backends.inspectable import Finding
from distlock.connecting import connect
from distlock.engine.events import OnLost
from distlock.errors import ConfigurationError
from distlock.fence.statements import Connection
from distlock.locks.client import Locks
from distlock.operate.command_line import URL
from distlock.web.settings.aliases import AliasSettings
from distlock.web.settings.clients import Clients, make_client
from distlock.web.settings.problems import DEFAULT_ALIAS

#: The environment variable for the prefix, instead of ``--prefix``.
PREFIX = "DISTLOCK_PREFIX"


class Site(ABC):
    """The origin of the client that the commands work on."""

    #: How the command is called here, for hints.
    command: str

    @abstractmethod
    def connect(self, alias: str | None, prefix: str | None, on_lost: OnLost | None = None) -> Locks:
        """Return a new client of *alias*, which the caller closes. It has not connected yet.

        *alias*: None: the default alias. *prefix*: None: the configured prefix. *on_lost*: called when a lock
        is lost. Raises `ConfigurationError`.
        """

    def examine(self, alias: str | None, threads: int | None) -> Iterator[Finding]:
        """Yield the doctor's findings about the settings.

        *threads*: how many threads one process of the web server has; None: unknown.
        """
        return iter(())


class Alone(Site):
    """The origin of the client outside of a site: a URL names the lock service."""

    command = "distlock"

    def __init__(self, url: str | None = None) -> None:
        self._url = url

    def connect(self, alias: str | None, prefix: str | None, on_lost: OnLost | None = None) -> Locks:
        if alias is not None:
            raise ConfigurationError(
                "--alias names one of a site's settings, which 'python manage.py distlock' and "
                "'flask distlock' know. Here it is --url."
            )
        url = self._url or os.environ.get(URL)
        if not url:
            raise ConfigurationError(
                f"Which lock service? Write --url redis://localhost:6379/0, or set {URL}. In a site "
                "'python manage.py distlock' and 'flask distlock' know its settings."
            )
        before = os.environ.get(PREFIX, "") if prefix is None else prefix
        return connect(url, prefix=before, on_lost=on_lost)


#: Opens a connection to the database that ``FENCE`` names, for locks that are rows.
LookInto = Callable[[bool | str], AbstractContextManager[Connection]]


class SettingsSite(Site):
    """The aliases of ``DISTLOCK`` in a site's settings."""

    def __init__(self, clients: Clients, command: str, look: LookInto) -> None:
        self._clients = clients
        self._look = look
        self.command = command

    def settings(self, alias: str | None) -> AliasSettings:
        return self._clients.settings(alias or DEFAULT_ALIAS)

    def connect(self, alias: str | None, prefix: str | None, on_lost: OnLost | None = None) -> Locks:
        settings = self.settings(alias)
        if prefix is not None:
            settings = replace(settings, prefix=prefix)
        return make_client(settings, on_lost, look=lambda: self._look(settings.fence))

    def examine(self, alias: str | None, threads: int | None) -> Iterator[Finding]:
        settings = self.settings(alias)
        if threads is None:
            return
        most = settings.max_waiters
        if most is None or most >= threads:
            yield Finding(
                "warning",
                "threads",
                f"One hot name may take all {threads} threads of a process, which wait up to "
                f"{settings.timeout:g} seconds each.",
                f"Set MAX_WAITERS to {max(1, threads - 2)} or less: the others keep serving other names.",
            )
        else:
            said = f"{most} of {threads} threads of a process may wait for one name."
            yield Finding("ok", "threads", said)
        pool: Any = settings.options.get("max_connections", 64)
        if settings.scheme.partition("+")[0] in {"redis", "rediss", "unix"} and pool < threads:
            each = "each node of the cluster" if settings.scheme.endswith("+cluster") else "the lock service"
            said = f"{threads} threads share {pool} connections to {each}."
            yield Finding("warning", "connections", said, f"Set max_connections in OPTIONS to {threads}.")
        elif settings.scheme in {"redlock", "redlocks"}:
            # Import this here: other sites need nothing of Redis.
            from distlock.backends.redlock.servers import WORKERS

            said = f"{threads} threads share {WORKERS} connections to each server."
            yield Finding("ok", "connections", said)


def operator() -> str:
    """Return who runs the command, as ``user@host``, for the log."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        # In a container, the user may be a number without a name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
