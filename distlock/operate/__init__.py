"""What an operator does: look at locks, list them, request a release, break one."""

from __future__ import annotations

from distlock.operate.looking import Listed, LockState, Party, ask_back, break_lock, inspect, list_locks

__all__ = ["Listed", "LockState", "Party", "ask_back", "break_lock", "inspect", "list_locks"]
