"""What the pages of both faces show an operator of locks, and do: the views and templates are the faces'."""

from __future__ import annotations
