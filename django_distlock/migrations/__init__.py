"""Migrations of the fence table, and of the permissions of the admin's page of locks."""

from __future__ import annotations
