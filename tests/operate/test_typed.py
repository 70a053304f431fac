"""The line that an operator types next means the same to a shell, whatever the name."""

from __future__ import annotations

import subprocess

import pytest

from distlock.operate.command_line import Typed, typed_for

NAMES = [
    "product_1",
    "a b",
    "it's",
    '"$HOME" `id` \\n',
    "-x",
    "--yes",
    "*; rm -r .",
    "a\u202eb\u200f'\\",
    "<script>",
    "\u2603",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_what_was_meant(name: str) -> None:
    line = typed_for("file:///tmp/two words", "shop").line("show", name)
    assert line.isprintable()
    read = subprocess.run(
        ["bash", "-c", f"distlock() {{ printf '%s\\0' \"$@\"; }}; {line}"], capture_output=True
    )
    end = ["--", name] if name.startswith("-") else [name]
    words = ["show", "--url", "file:///tmp/two words", "--prefix", "shop", *end]
    assert read.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize(
    "url",
    ["redis://:secret@host/0", "zookeeper://user:secret@a,b/shop", "redis://host?password=secret", None],
)
def test_a_password_is_in_no_line(url: str | None) -> None:
    assert typed_for(url, "shop") == Typed(options=(("--prefix", "shop"),), hides_url=True)
