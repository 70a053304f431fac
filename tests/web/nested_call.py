"""A process that takes one lock, and inside it another one: ``python -m tests.web.nested_call URL a b``.

It says ``in`` when it has the first, goes on after a line, and says how it ended.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distlock
from distlock.errors import LockTimeout
from distlock.web import guard

TIMEOUT = 6.0


class NoTransactions:
    def refuse_open(self, names: Any, nested: bool) -> None: ...

    @contextmanager
    def begin(self, grant: Any, fenced_in: Any, left: Any) -> Iterator[bool]:
        yield False


def main(url: str, outer: str, inner: str) -> None:
    logging.basicConfig(stream=sys.stdout, format="told %(message)s")
    client = distlock.connect(url, timeout=TIMEOUT)

    def body() -> str:
        print("in", flush=True)
        sys.stdin.readline()
        return guard.run(client, [inner], lambda: "done", NoTransactions())

    try:
        print(guard.run(client, [outer], body, NoTransactions()), flush=True)
    except LockTimeout as error:
        print(error, flush=True)
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
