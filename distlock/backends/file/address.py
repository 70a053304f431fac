"""Which directory a URL names. A URL may hold a secret by mistake, so no error quotes one."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from distlock.errors import ConfigurationError

#: A directory that no other user can replace. On Debian one command makes it, see `MAKE_IT`.
EXAMPLE = "file:///var/lib/shop/locks"

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HARMLESS = re.compile(r"[\w.-]+")


def make_it(directory: str) -> str:
    """The command that makes *directory* for a user, and the one that makes it for a group."""
    return (
        f'sudo install -d -o "$USER" {directory} (or, for the users of a group: '
        f"sudo install -d -m 2770 -g GROUP {directory})"
    )


def give_it(directory: str) -> str:
    """The command that gives *directory*, and all that is in it, to a user, or to the users of a group."""
    return (
        f'sudo chown -R "$USER" {directory} (or, for the users of a group: '
        f"sudo rm -r {directory} && sudo install -d -m 2770 -g GROUP {directory})"
    )


def directory_of(url: str) -> str:
    """The absolute directory that *url* names: ``file:///var/lib/shop/locks``, or a bare absolute path.

    Raises `ConfigurationError`, with the line to write, for everything else.
    """
    if not url.isprintable():
        raise ConfigurationError(f"The URL of the lock directory has control characters. Write {EXAMPLE}")
    try:
        parts = urlsplit(url)
    except ValueError:
        # The cause would quote the URL.
        raise ConfigurationError(f"The URL of the lock directory cannot be read. Write {EXAMPLE}") from None
    if parts.scheme not in {"", "file"}:
        raise ConfigurationError(f"The file backend takes file:// and not {parts.scheme}://. Write {EXAMPLE}")
    if parts.netloc not in {"", "localhost"}:
        harmless = _HARMLESS.fullmatch(parts.netloc + parts.path.replace("/", "."))
        meant = f"file:///{parts.netloc}{parts.path}" if harmless else EXAMPLE
        raise ConfigurationError(
            "The URL of the lock directory names a host: file:// takes the directory of this host, "
            f"behind three slashes. Write {meant}"
        )
    path = parts.path
    if "?" in url or "#" in url:
        raise ConfigurationError(
            "The URL of the lock directory has a query or fragment: the file backend takes none. Options are "
            f"arguments of connect() or OPTIONS. Write {EXAMPLE}; a ? in a name is %3F, and a # is %23."
        )
    if parts.scheme:
        if _BROKEN_ESCAPE.search(path):
            raise ConfigurationError(
                "The URL of the lock directory has a % without two hexadecimal digits behind it. "
                f"Write %25 for a %, for example {EXAMPLE}/100%25"
            )
        if "%2f" in path.lower():
            raise ConfigurationError(
                f"The URL of the lock directory has %2F: a name has no slash. Write /, as in {EXAMPLE}"
            )
        path = unquote(path, errors="surrogateescape")
    if "\0" in path or not path.startswith("/") or not path.strip("/"):
        raise ConfigurationError(
            "The URL of the lock directory names no absolute directory: its path has to begin with a slash. "
            f"Write {EXAMPLE}"
        )
    return os.path.normpath("/" + path.lstrip("/"))
