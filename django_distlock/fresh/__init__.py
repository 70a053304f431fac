"""Compares what a request read before its lock with what is stored now, and updates it."""
