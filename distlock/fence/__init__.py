"""The fence: what is overtaken is not committed."""

from __future__ import annotations
