"""One call of a backend: the presence that it has, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Callable

from distlock.backends.file.directory import Directory
from distlock.backends.file.presence import Presence
from distlock.errors import BackendUnavailable, ConfigurationError


class Call:
    """The presence for one call: it keeps its descriptor until the call has ended, even if it is closed."""

    __slots__ = ("_begun", "_directory", "_presence")

    def __init__(self, begun: Callable[[], Presence], directory: Directory) -> None:
        """*begun*: gives the presence, with a call begun."""
        self._begun = begun
        self._directory = directory

    def __enter__(self) -> Presence:
        try:
            self._presence = presence = self._begun()
        except OSError as error:
            raise self._directory.explain(error) from error
        try:
            presence.locks.heal()
        except BaseException:
            presence.end()
            raise
        return presence

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._presence.end()
        except OSError as at_end:
            error = error or at_end
        if isinstance(error, OSError):
            raise self._directory.explain(error) from error


class CallForOurs:
    """A call that needs what we have there. None: that has gone with a directory that can't be used any more.

    What we have stays for as long as this process lives, so no error may be the last word: rights that were
    taken away may be given back.
    """

    __slots__ = ("_begun", "_call")

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> Presence | None:
        self._begun = False
        try:
            presence = self._call.__enter__()
        except ConfigurationError:
            return None
        self._begun = True
        return presence

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if self._begun:
                self._call.__exit__(kind, error, traceback)
        except ConfigurationError as told:
            error = told
        if isinstance(error, ConfigurationError):
            raise BackendUnavailable(str(error)) from error
