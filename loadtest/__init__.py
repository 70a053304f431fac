"""The load test: fifty buyers, one product. Does the shop sell more than it has?"""

from __future__ import annotations
