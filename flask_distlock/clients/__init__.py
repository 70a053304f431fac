"""What ``locks["alias"]`` gives: a client, whose ``with`` blocks take care of the session as a guard does."""

from __future__ import annotations
