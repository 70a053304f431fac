"""A call of the file backend whose end fails, too: the caller gets the error of the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import distlock
from distlock.backends.file.contender import Presence
from distlock.testing.waits import engine_of


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("mine")])
def test_the_error_of_the_call_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    locks = distlock.connect(tmp_path.as_uri())
    with locks.lock("a"):
        pass
    backend: Any = engine_of(locks).backend

    def fail(presence: Presence) -> None:
        raise error

    def end(self: Presence, *_: object) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(Presence, "end", end)
    with pytest.raises(type(error)):
        backend._during(fail)
