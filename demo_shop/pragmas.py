"""How each connection to SQLite is set up, in both frameworks."""

from __future__ import annotations

#: Readers beside a writer; no fsync for each order; writers queue instead of failing.
SQLITE_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA busy_timeout=30000")
