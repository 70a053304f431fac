"""Locks by Redlock: each is held at a majority of several independent Redis servers."""
