"""Makes the names of locks from the arguments of a call and from its request."""

from __future__ import annotations
