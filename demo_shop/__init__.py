"""A shop that deducts stock, in Django, Flask and Quart over one database, safe or unsafe by choice."""

from __future__ import annotations

#: All frameworks set up each connection to SQLite so. Readers can read beside a writer; an order needs no
#: fsync; writers wait for each other instead of failing.
SQLITE_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA busy_timeout=30000")
