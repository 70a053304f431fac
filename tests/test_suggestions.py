"""What an import of a wrong name says."""

from __future__ import annotations

import re

import pytest

import distlock


@pytest.mark.parametrize(
    ("package", "name", "line"),
    [
        ("distlock", "distributed_lock", "from django_distlock import distributed_lock (or flask_distlock)"),
        ("django_distlock", "LockTimeout", "from distlock import LockTimeout"),
        ("django_distlock", "transaction", "from django_distlock import atomic"),
        ("flask_distlock", "connect", "from distlock import connect"),
        ("flask_distlock", "atomic", "from flask_distlock import transaction"),
    ],
)
def test_a_name_of_another_package_of_ours_comes_with_the_line_that_imports_it(
    package: str, name: str, line: str
) -> None:
    with pytest.raises(ImportError, match=re.escape(line)):
        exec(f"from {package} import {name}", {})


def test_any_other_name_is_unknown_as_in_any_module() -> None:
    assert not hasattr(distlock, "no_such_name")
    assert not hasattr(distlock, "lock")
    with pytest.raises(AttributeError, match="module 'distlock' has no attribute 'no_such_name'") as caught:
        _ = distlock.no_such_name
    assert (caught.value.name, caught.value.obj) == ("no_such_name", distlock)


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("from distlock import LockTimout", "from distlock import LockTimeout"),
        ("from distlock import rlock", "from distlock import RLock"),
        ("from django_distlock import distribute_lock", "from django_distlock import distributed_lock"),
        ("from flask_distlock import Distlock", "from flask_distlock import DistLock"),
        ("from flask_distlock import LockTimout", "from distlock import LockTimeout"),
        ("from django_distlock import DistLok", "from flask_distlock import DistLock"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_line_to_write(line: str, suggestion: str) -> None:
    with pytest.raises(ImportError, match=f"Did you mean: {suggestion}$"):
        exec(line, {})
