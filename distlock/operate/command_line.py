"""The command that an operator types next: complete, so that it can be pasted, and without a password."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

#: The environment variable for a URL that must not appear in the list of processes.
URL = "DISTLOCK_URL"


def quoted(word: str) -> str:
    """Return *word*, quoted for a shell, in printable characters."""
    if word.isprintable():
        return shlex.quote(word)
    # Write the other characters as octal bytes, which bash, zsh, ksh and busybox read.
    shown = "".join(_escaped(one) for one in word)
    return f"$'{shown}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    return character if character.isprintable() else "".join(f"\\{byte:03o}" for byte in character.encode())


@dataclass(frozen=True, slots=True)
class Typed:
    """How to call ``distlock`` for the locks of one client."""

    #: The command, such as ``python manage.py distlock``.
    command: str = "distlock"
    #: The options that name the client: pairs of an option and its value.
    options: tuple[tuple[str, str], ...] = ()
    #: Whether the URL is left out of the options, because it may contain a password or is unknown.
    hides_url: bool = False

    def line(self, word: str, name: str, *more: tuple[str, str]) -> str:
        """Return the command line of the subcommand *word* for the lock *name*, with the options *more*."""
        words = [part for option in (*self.options, *more) for part in option]
        # After "--" nothing is an option.
        last = ["--", name] if name.startswith("-") else [name]
        return " ".join([self.command, word, *map(quoted, [*words, *last])])

    def with_option(self, option: str, value: str) -> Typed:
        return replace(self, options=(*self.options, (option, value)))


def typed_for(url: str | None, prefix: str | None) -> Typed:
    """Return the `Typed` for the lock service at *url* (None: unknown) and *prefix* (None: the default)."""
    hides = url is None or "@" in url or "?" in url
    options = [] if url is None or hides else [("--url", url)]
    if prefix is not None:
        options.append(("--prefix", prefix))
    return Typed(options=tuple(options), hides_url=hides)
