"""Grants: of one name, of several names, and those of the guards around the running code."""
