"""The stock-deduction shop: a Django and a Flask application over one database, safe or unsafe by choice."""

from __future__ import annotations

#: How both frameworks set up each connection to SQLite. Readers beside a writer; no fsync for each order;
#: writers queue instead of failing.
SQLITE_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA busy_timeout=30000")
