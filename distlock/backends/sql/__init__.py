"""Locks in PostgreSQL, MariaDB and MySQL: advisory locks, which belong to sessions."""
