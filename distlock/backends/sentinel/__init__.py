"""Locks in the Redis server that sentinels call the primary."""
