"""Whether the clients of two configurations have one namespace, as far as their settings tell."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: A user and a password in a URL. They may change while processes run.
_LOGIN = re.compile(r"//[^/@]*@")


def identity(
    url: str, backend: str | None, prefix: str, options: Mapping[str, object], row: object = None
) -> object:
    """Return a value that two configurations have in common if and only if they share locks."""
    # A login says nothing of where that is, and an object has a text of its own in each process.
    told = {name: value for name, value in options.items() if name != "credential_provider"}
    return url, backend, prefix, told, row


def lock_service(of: object) -> str:
    """Return a text for the lock service in the `identity` *of* a client; "" if that is unknown.

    It is the same in every process, whatever login its URL has, and sorts lock services.
    """
    if not isinstance(of, tuple):
        return ""
    url, backend, _, _, row = of
    return repr((_LOGIN.sub("//", url), backend, row)) if url else ""
