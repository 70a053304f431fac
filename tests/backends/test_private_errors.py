"""Errors that backends tell from each other carry the names of `distlock.errors` outside."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import traceback

import distlock
from distlock import errors


def private() -> list[type[errors.LockError]]:
    """The errors that a module of a backend has, and `distlock.errors` has not."""
    modules = [
        one for one in pkgutil.walk_packages(distlock.__path__, "distlock.") if ".backends." in one.name
    ]
    values = [value for found in modules for value in vars(importlib.import_module(found.name)).values()]
    classes = {value for value in values if isinstance(value, type)}
    public = {value for value in vars(errors).values() if isinstance(value, type)}
    return sorted((one for one in classes - public if issubclass(one, errors.LockError)), key=repr)


def test_an_error_of_a_backend_is_shown_and_pickled_by_its_public_name() -> None:
    found = private()
    assert len(found) >= 3, "is any module looked at?"
    for error in found:
        check(error)


def check(error: type[errors.LockError]) -> None:
    raised = error("The Redis server can't be used.")
    public = getattr(errors, error.__name__, None)
    assert public is not None, f"{error.__module__}.{error.__qualname__} is internal"
    assert isinstance(raised, public)
    (line,) = traceback.format_exception_only(raised)
    assert line == f"distlock.errors.{public.__name__}: The Redis server can't be used.\n"
    assert repr(raised) == f'{public.__name__}("The Redis server can\'t be used.")'
    copy = pickle.loads(pickle.dumps(raised))
    assert (type(copy), str(copy)) == (public, str(raised))
