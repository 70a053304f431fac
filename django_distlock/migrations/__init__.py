"""Migrations of the table of the fence."""
