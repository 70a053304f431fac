"""What a backend does beyond `distlock.backends.base` if a holder can be asked to give a key back.

Nothing is taken by force. The request is kept with the hold that it is for, and ends with it: a message that
is lost is no request that is lost, and no later holder finds it.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from distlock.backends.base import Backend


@runtime_checkable
class Notifies(Backend, Protocol):
    """A backend with the capability ``notify``.

    That of the holder tells its sink (`Sink.release_requested`): at once where it hears of that, and else in
    the next `Backend.renew` of the hold, or where there are no leases in the next `Inspectable.announce`. It
    may tell it again each time.
    """

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        """Ask everybody who holds *key* just now to give it back. False: nobody holds it."""
