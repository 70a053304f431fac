"""Locks in a Redis Cluster. Each lock is on the node that has its slot."""
