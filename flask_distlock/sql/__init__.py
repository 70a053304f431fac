"""Handles SQLAlchemy's sessions under locks, and the fence rows in its databases.

Other modules import this package only if the site has SQLAlchemy: see `flask_distlock.guarding.app_state`.
"""

from __future__ import annotations
