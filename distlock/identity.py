"""Whether the clients of two configurations have one namespace, as far as their settings tell."""

from __future__ import annotations

from collections.abc import Mapping


def identity(
    url: str, backend: str | None, prefix: str, options: Mapping[str, object], row: object = None
) -> object:
    """Return a value that two configurations have in common if and only if they share locks."""
    # A login says nothing of where that is, and an object has a text of its own in each process.
    told = {name: value for name, value in options.items() if name != "credential_provider"}
    return url, backend, prefix, told, row
