"""Another user of this host: to attack with what a shell has, and to own what is not ours.

Only root can become another user. Where the tests don't run as root, the kernel's word on an owner is changed
on its way to us, and the attacks themselves are left out.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

NOBODY = 65534


class Stranger:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real = os.geteuid() == 0
        self._monkeypatch = monkeypatch
        self._owned: set[tuple[int, int]] = set()
        if not self.real:
            for name in ("fstat", "lstat"):
                self._disown(name)

    def own(self, path: Path, uid: int = NOBODY) -> None:
        """Make *path* this user's."""
        if self.real:
            os.chown(path, uid, uid, follow_symlinks=False)
        else:
            status = path.lstat()
            self._owned.add((status.st_dev, status.st_ino))

    def swaps(self, path: Path) -> bool:
        """Put another directory in the place of *path*. Whether that is allowed."""
        return self._does("mv", "-T", path, f"{path}-away") and self._does("mkdir", path)

    def points_elsewhere(self, link: Path, target: Path) -> bool:
        """Have the symbolic link *link* point to *target*. Whether that is allowed."""
        return self._does("ln", "-sfnT", target, link)

    def _does(self, *command: str | Path) -> bool:
        attempt = subprocess.run(
            command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False
        )
        return attempt.returncode == 0

    def _disown(self, name: str) -> None:
        original = getattr(os, name)

        def disowned(*arguments: object, **more: object) -> os.stat_result:
            status: os.stat_result = original(*arguments, **more)
            if (status.st_dev, status.st_ino) not in self._owned:
                return status
            fields = list(status)
            fields[4] = fields[5] = NOBODY
            return os.stat_result(fields)

        self._monkeypatch.setattr(os, name, disowned)
