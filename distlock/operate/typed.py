"""The line that an operator types next: complete, so that it can be pasted, and without a password."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

#: Where the command looks for a URL that is not to stand in the list of processes.
URL = "DISTLOCK_URL"


def quoted(word: str) -> str:
    """*word*, as a shell reads it, in characters that a terminal shows."""
    if word.isprintable():
        return shlex.quote(word)
    # The characters that are written as octal bytes, which bash, zsh, ksh and busybox read.
    shown = "".join(_escaped(one) for one in word)
    return f"$'{shown}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    return character if character.isprintable() else "".join(f"\\{byte:03o}" for byte in character.encode())


@dataclass(frozen=True, slots=True)
class Typed:
    """How ``distlock`` is called for the locks of one client."""

    #: ``python manage.py distlock``.
    command: str = "distlock"
    #: The options that say which locks: pairs of an option and its value.
    options: tuple[tuple[str, str], ...] = ()
    #: The URL is not among them: it may hold a password.
    hides_url: bool = False

    def line(self, word: str, name: str, *more: tuple[str, str]) -> str:
        """Return the line that runs *word* on lock *name*. *more*: its options."""
        words = [part for option in (*self.options, *more) for part in option]
        # After "--" nothing is an option.
        last = ["--", name] if name.startswith("-") else [name]
        return " ".join([self.command, word, *map(quoted, [*words, *last])])

    def with_option(self, option: str, value: str) -> Typed:
        return replace(self, options=(*self.options, (option, value)))


def typed_for(url: str | None, prefix: str | None) -> Typed:
    """For the lock service at *url*, None: one that no URL names. *prefix*: None: the usual one."""
    hides = url is None or "@" in url or "?" in url
    options = [] if url is None or hides else [("--url", url)]
    if prefix is not None:
        options.append(("--prefix", prefix))
    return Typed(options=tuple(options), hides_url=hides)
