"""What a test of a private name says where the name is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def leaning_on(name: str, where: str, file: str = "django_distlock/private.py") -> Iterator[None]:
    """The block asserts that *name* is what it was. *where*: what to look at in the new version."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(
            f"{name} is gone, or is not what it was: look at {where} in the installed version, and mend what "
            f"leans on it in {file}."
        ) from error
