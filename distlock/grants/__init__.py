"""Grants: one of a name, several as one, and those around the running code."""
