"""The museum's runs: each breaks one flawed lock and counts the damage; distlock passes the very same run."""

from __future__ import annotations
