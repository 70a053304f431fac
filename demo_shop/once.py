"""Exactly one order for each ``Idempotency-Key``: a request that is repeated gets the first answer.

The header is that of https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/. What was
answered is a row, committed together with the order: there are both, or neither.
See docs/how-to/idempotency.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from demo_shop.sale import Refusal

HEADER = "Idempotency-Key"
#: Stripe's: says that the answer is not new.
REPLAYED = "Idempotent-Replayed"
LONGEST = 255


@dataclass(frozen=True, slots=True)
class Asked:
    """One request with a key. Digests: they have one length, and no collation takes two for one."""

    key: str
    #: Of everything that makes it the same request.
    fingerprint: str

    def refuse_another(self, fingerprint: str) -> None:
        """Raise `Refusal` if the key was used for a request with another *fingerprint*."""
        if fingerprint != self.fingerprint:
            title = "This Idempotency-Key was used for another request. Take a new one"
            raise Refusal(422, "key_reused", title)


def read_key(header: str | None) -> str | None:
    """The key that *header* has, as it is stored; None: the client sent none."""
    if header is None:
        return None
    # The draft's is a string of structured fields, in quotes; most clients send it bare.
    key = header[1:-1] if header[:1] == header[-1:] == '"' else header
    if not (key.isascii() and key.isprintable() and 1 <= len(key) <= LONGEST):
        title = f"The Idempotency-Key has to be 1 to {LONGEST} characters of ASCII, such as a UUID"
        raise Refusal(400, "bad_key", title)
    return digest(key)


def read_asked(header: str | None, *request: str | bytes) -> Asked | None:
    """What was asked with a key. *request*: all that makes it the same one: method, URL and body."""
    key = read_key(header)
    return None if key is None else Asked(key, digest(*request))


def lock_names(header: str | None) -> list[str]:
    """The lock of the key. A second request waits there for the first, and not in the database."""
    key = read_key(header)
    return [] if key is None else [f"key_{key}"]


def digest(*parts: str | bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        found.update(len(encoded).to_bytes(8, "big") + encoded)
    return found.hexdigest()
