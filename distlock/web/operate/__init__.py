"""The pages on which operators see and break locks, without the views, which each framework's package has."""

from __future__ import annotations
