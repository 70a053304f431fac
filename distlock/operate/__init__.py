"""What an operator does: look at locks, list them, break one. Commands, pages and metrics are made of it."""

from __future__ import annotations

from distlock.operate.looking import Listed, LockState, Party, ask_back, break_lock, inspect, list_locks

__all__ = ["Listed", "LockState", "Party", "ask_back", "break_lock", "inspect", "list_locks"]
