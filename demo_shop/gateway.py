"""The payment gateway that the shop calls: somebody else's service, which takes so many at once."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo_shop.configuration import Configuration

#: How many payments it takes at once; it refuses those above.
LIMIT = 5
#: Longest wait for its answer, seconds.
PATIENCE = 30.0


def charge(shop: Configuration) -> bool:
    """Whether the gateway took the payment."""
    asked = urllib.request.Request(shop.gateway, data=b"", method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE):
            return True
    except urllib.error.HTTPError as refused:
        refused.close()
        return False
