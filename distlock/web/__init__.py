"""What the Django face and the Flask face share. Imports no web framework."""

from __future__ import annotations
