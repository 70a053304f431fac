"""The load test: fifty buyers, one product, and the question whether the shop sells more than it has."""

from __future__ import annotations
