"""The locks: plain, re-entrant, shared, latches, and several as one."""
