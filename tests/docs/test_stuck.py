"""A stuck lock is found and broken by the lines of its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import distlock
from tests.redis_server import RedisServer, eventually, redis_server
from tests.web.quickstart import code_blocks

__all__ = ["redis_server"]

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/stuck.md").read_text("utf-8")
LOOK, BREAK = code_blocks(PAGE, "python")


def test_a_stuck_lock_is_found_and_broken(
    redis_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = distlock.connect(redis_server.url, prefix="shop")
    grant = holder.lock("product_1").acquire()
    assert grant is not None
    look = compile(LOOK.replace("redis://localhost:6379/0", redis_server.url), "docs/how-to/stuck.md", "exec")

    def said() -> str:
        exec(look, seen)
        seen["locks"].close()
        return capsys.readouterr().out

    seen: dict[str, Any] = {}
    (shown,) = code_blocks(PAGE, "text")
    shown = re.escape(shown).replace("shop\\.views\\.reduce_stock", ".+")
    shown = shown.replace("4711", r"\d+").replace("web1", r"\S+").replace("9\\ ", r"\d+\ ")
    eventually(lambda: re.fullmatch(shown, said()), "the holder says what it is", pause=0.1)

    exec(compile(BREAK, "docs/how-to/stuck.md", "exec"), seen)
    assert seen["broken"] is True
    with seen["locks"].lock("product_1", timeout=1):
        exec(compile(BREAK, "docs/how-to/stuck.md", "exec"), seen)
        assert seen["broken"] is False
    seen["locks"].close()
    holder.close()
