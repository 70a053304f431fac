"""A copy of the working tree, in which files are changed and tests are run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Where everything is kept; git ignores it.
KEPT = ROOT / "var" / "mutate"


class Tree:
    """The copy at *place*. Tests in it import its packages, and not those of the working tree."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._mtime = 0
        # What was replaced, as it was in the copy: the working tree may have changed since then.
        self._texts: dict[str, str] = {}

    def update(self) -> None:
        """Make the copy equal to the working tree."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, stdout=subprocess.PIPE, check=True,
        ).stdout.decode().split("\0")  # fmt: skip
        wanted = {name for name in listed if name and (ROOT / name).is_file()}
        for name in wanted:
            source, copy = ROOT / name, self.place / name
            if not copy.is_file() or copy.read_bytes() != source.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy)
        for folder in ("distlock", "django_distlock", "flask_distlock", "tests"):
            for copy in (self.place / folder).rglob("*.py"):
                if copy.relative_to(self.place).as_posix() not in wanted:
                    copy.unlink()
        link = self.place / ".venv"
        if not link.is_symlink():
            link.symlink_to(ROOT / ".venv")

    def write(self, name: str, text: str) -> None:
        """Replace the file *name*. Python has to notice even if size and second are the same as before."""
        path = self.place / name
        self._texts.setdefault(name, path.read_text("utf-8"))
        self._mtime = max(self._mtime, int(path.stat().st_mtime)) + 1
        path.write_text(text, "utf-8")
        os.utime(path, (self._mtime, self._mtime))

    def original(self, name: str) -> str:
        """Return the text of *name* before `write`."""
        return self._texts.get(name) or (self.place / name).read_text("utf-8")

    def restore(self, name: str) -> None:
        self.write(name, self.original(name))

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.place)}
