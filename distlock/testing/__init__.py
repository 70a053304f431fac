"""For those who test: the conformance kit for backends, and the checker of histories."""

from __future__ import annotations
