"""The import and the export of the page give their lock back when somebody asks for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import distlock
from distlock.testing.waits import wait_until
from tests.web.quickstart import code_blocks

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/give-back.md").read_text("utf-8")
IMPORT, EXPORT, ASK = code_blocks(PAGE, "python")
CEILING = 60


def test_the_import_stops_between_two_batches_and_goes_on_later(capsys: pytest.CaptureFixture[str]) -> None:
    module: dict[str, Any] = {}
    exec(compile(IMPORT, "docs/how-to/give-back.md", "exec"), module)
    other = distlock.connect("memory://example", prefix="shop")
    done: list[int] = []

    def asked_meanwhile() -> None:
        done.append(1)
        exec(compile(ASK, "docs/how-to/give-back.md", "exec"), module)
        (grant,) = module["locks"].namespace.grants()
        wait_until(lambda: grant.release_requested, "the import is told")

    batches = [lambda: done.append(0), asked_meanwhile, lambda: done.append(2)]
    assert module["import_catalogue"](batches) == 2
    assert capsys.readouterr().out == "It is held, and its holder was asked.\n"
    with other.lock("catalogue", timeout=1):
        assert done == [0, 1]
    assert module["import_catalogue"](batches[2:]) == 1
    assert done == [0, 1, 2]
    exec(compile(ASK, "docs/how-to/give-back.md", "exec"), module)
    assert capsys.readouterr().out == "", "nobody holds it any more"
    module["locks"].close()
    other.close()


def test_the_export_is_called_while_it_waits() -> None:
    module: dict[str, Any] = {}
    exec(compile(IMPORT + EXPORT, "docs/how-to/give-back.md", "exec"), module)
    waits = threading.Event()

    def wait_for_work(stop: threading.Event) -> bool:
        waits.set()
        assert stop.wait(CEILING)
        return True

    with ThreadPoolExecutor() as pool:
        export = pool.submit(module["export_until_asked"], wait_for_work)
        assert waits.wait(CEILING)
        assert module["locks"].request_release("catalogue")
        export.result(CEILING)
    assert not module["locks"].lock("catalogue").locked()
    module["locks"].close()
