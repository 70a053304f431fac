"""Migrations of the fence table, and of the permissions of the admin's page of locks."""
