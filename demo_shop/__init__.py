"""The stock-deduction shop: a Django and a Flask application over one database, safe or unsafe by choice."""

from __future__ import annotations
