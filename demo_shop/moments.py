"""The moments of a purchase, written down as they are reached: the report's timelines are drawn from them.

Nothing is written unless ``SHOP_JOURNAL`` names a file. ``SHOP_STALL`` lets the load test stop an instance in
one of them, so that nobody has to hope for the right millisecond.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo_shop.configuration import Configuration

#: What the buyer calls this purchase.
HEADER = "X-Purchase"
#: How long a purchase stays where nobody stops it, seconds.
PATIENCE = 30.0
_purchase: ContextVar[str] = ContextVar("purchase", default="")
_first = threading.Lock()


def begin(purchase: str) -> None:
    """The moments of this thread are those of *purchase* from now on."""
    _purchase.set(purchase)


def reach(shop: Configuration, what: str, **details: object) -> None:
    if shop.journal:
        moment = {"at": time.time(), "instance": shop.instance, "purchase": _purchase.get(), "what": what}
        # One write for each line: those of two instances don't mix.
        os.write(_journal(shop.journal), f"{json.dumps(moment | details)}\n".encode())
    if shop.stall:
        _stall_if_told(shop, what)


def _stall_if_told(shop: Configuration, what: str) -> None:
    instance, point, port, *called = shop.stall.split(":")
    if (instance, point) != (shop.instance, what):
        return
    if _purchase.get() in called if called else _first.acquire(blocking=False):
        _stall(int(port))


@functools.cache
def _journal(file: str) -> int:
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _stall(port: int) -> None:
    """Say which purchase it is, and stay until the listener there has hung up."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as harness:
        harness.sendall(_purchase.get().encode())
        harness.shutdown(socket.SHUT_WR)
        harness.recv(1)
