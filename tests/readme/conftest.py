from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from tests.readme.reader import ROOT, Reader, copy_of_the_clone, digest

#: Kept from one run of pytest to the next, as long as the clone is the same: to install takes longest.
HOME = ROOT / "var" / "reader"


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Has installed the README's extra, that of the other framework, and those of the lock services."""
    HOME.parent.mkdir(exist_ok=True)
    with HOME.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return installed(tmp_path_factory.mktemp("reader") / "clone")


def installed(clone: Path) -> Reader:
    made, ready, wanted = Reader(HOME / "venv"), HOME / "ready", digest()
    if not ready.exists() or ready.read_text() != wanted:
        shutil.rmtree(HOME, ignore_errors=True)
        made.install(copy_of_the_clone(clone), "flask", "redis", "zookeeper")
        ready.write_text(wanted)
    return made
