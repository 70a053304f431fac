from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.redis_server import RedisServer, redis_server
from tests.web.quickstart import (
    BUYERS,
    PURCHASES,
    STOCK,
    buy,
    own_environment,
    snippets,
    two_instances,
    without_decorator,
)

__all__ = ["redis_server"]

MODELS = """
from django.db import models

class Product(models.Model):
    stock = models.IntegerField()
"""
#: What is typed when the lines stand there, in one process: each would load Django again.
READY = f"""
from django.core.management import call_command
from shop.models import Product

call_command("check", fail_level="WARNING")
call_command("makemigrations", "shop")
call_command("migrate")
Product.objects.create(stock={STOCK})
"""
CSRF = {"Cookie": f"csrftoken={'x' * 32}", "X-CSRFToken": "x" * 32}


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=own_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def start_project(folder: Path, url: str) -> None:
    folder.mkdir()
    run(folder, "-m", "django", "startproject", "mysite", ".")
    run(folder, "manage.py", "startapp", "shop")
    _, views, urls, setting = snippets("start/django.md")
    with (folder / "mysite" / "settings.py").open("a") as settings:
        settings.write("\nINSTALLED_APPS += ['shop']\n")
        settings.write(setting.replace("redis://localhost:6379/0", url))
    (folder / "shop" / "models.py").write_text(MODELS)
    (folder / "shop" / "views.py").write_text(views)
    with (folder / "mysite" / "urls.py").open("a") as file:
        file.write(urls)
    run(folder, "manage.py", "shell", "-v0", "-c", READY)


def sell(folder: Path) -> tuple[list[int], int]:
    with two_instances(folder, "mysite.wsgi") as ports:
        statuses = buy(ports, CSRF)
    database = sqlite3.connect(folder / "db.sqlite3")
    ((left,),) = database.execute("SELECT stock FROM shop_product")
    database.close()
    return statuses, left


def test_a_new_project_becomes_safe_with_the_lines_of_the_page(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    locked, control = tmp_path / "locked", tmp_path / "control"
    start_project(locked, redis_server.url)
    shutil.copytree(locked, control)
    views = control / "shop" / "views.py"
    views.write_text(without_decorator(views.read_text()))

    statuses, left = sell(locked)
    unlocked, _ = sell(control)

    assert (statuses.count(200), statuses.count(409), left) == (STOCK, BUYERS * PURCHASES - STOCK, 0)
    assert unlocked.count(200) > STOCK
