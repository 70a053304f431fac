from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

from tests.browsing import browser, chromium
from tests.databases import databases

__all__ = ["browser", "chromium", "databases"]

# A background job of a shell ignores SIGINT, and so would all that it starts: a test that ends a program with
# Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How quick an example is says how busy the machine is.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
# ``--hypothesis-profile=long`` looks for what nobody has seen: see `tests.hostile.fuzz`.
settings.register_profile("long", settings.get_profile("busy"), max_examples=5000)
