from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.redis_server import RedisServer, redis_server
from tests.web.quickstart import BUYERS, PURCHASES, STOCK, buy, snippets, two_instances, without_decorator

__all__ = ["redis_server"]

FILL = f"""
from shop import Product, app, db

with app.app_context():
    db.create_all()
    db.session.add(Product(stock={STOCK}))
    db.session.commit()
"""


def sell(folder: Path, lines: str) -> tuple[list[int], int]:
    folder.mkdir()
    (folder / "shop.py").write_text(lines)
    subprocess.run([sys.executable, "-c", FILL], cwd=folder, check=True)
    with two_instances(folder, "shop:app") as ports:
        statuses = buy(ports, {})
    database = sqlite3.connect(folder / "instance" / "shop.db")
    ((left,),) = database.execute("SELECT stock FROM product")
    database.close()
    return statuses, left


def test_a_small_app_becomes_safe_with_the_lines_of_the_page(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    app, _, on_servers = snippets("start/flask.md")
    lines = re.sub(r"app\.config\[\"DISTLOCK\"\] = .*\n", lambda _: on_servers, app)
    lines = lines.replace("redis://localhost:6379/0", redis_server.url)
    statuses, left = sell(tmp_path / "locked", lines)
    control, _ = sell(tmp_path / "control", without_decorator(lines))

    assert (statuses.count(200), statuses.count(409), left) == (STOCK, BUYERS * PURCHASES - STOCK, 0)
    assert control.count(200) > STOCK
