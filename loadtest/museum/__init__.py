"""The museum's runs. Each breaks one flawed lock and counts the damage; distlock passes the same run."""

from __future__ import annotations
