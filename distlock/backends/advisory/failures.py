"""What a server answers with instead, and its end."""

from __future__ import annotations


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Gone(Exception):
    """The session broke, or ended. What it held is free."""


class Vanished(Refused):
    """The server's row of the name is gone, or belongs to another name."""
