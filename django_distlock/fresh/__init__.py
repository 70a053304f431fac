"""Compares the data that a request read before its lock with the stored data, and updates what it read."""
