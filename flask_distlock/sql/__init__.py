"""The sessions of SQLAlchemy around a lock, and the fence's row in its databases.

Only what runs where the site has SQLAlchemy imports this: see `flask_distlock.guarding.state`.
"""

from __future__ import annotations
