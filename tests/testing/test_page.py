"""The lines of docs/how-to/testing.md, in a Django project and a Flask app, with the lock and without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.databases import Databases
from tests.test_docs import DOCS, ROOT, snippets
from tests.web.quickstart import code_blocks, own_environment, without_decorator

PAGE = snippets(DOCS / "how-to/testing.md")
#: By the file that their first line names.
BLOCKS = {found[1]: block for block in PAGE if (found := re.match(r"# (\S+)\n", block))}

SETTINGS = """
from pathlib import Path

BASE_DIR = Path(__file__).parents[1]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
SECRET_KEY = "tests only"
STATIC_URL = "static/"
"""
MODELS = """
from django.db import models


class Product(models.Model):
    stock = models.IntegerField()
"""
MANAGE = "import sys; from django.core.management import execute_from_command_line as run; run(sys.argv)"


def run(folder: Path, *command: str) -> tuple[int, str]:
    environment = {**own_environment(), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    plugins = ["-p", "pytest_distlock", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    return run(folder, "-m", "pytest", "-q", "-W", "error", *plugins, *arguments)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A Django project with the ten lines of its page, and the tests of this one."""
    for package in ("mysite", "shop", "shop/tests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    _, views, urls, setting = snippets(DOCS / "start/django.md")
    (tmp_path / "shop/models.py").write_text(MODELS)
    (tmp_path / "shop/views.py").write_text(views)
    (tmp_path / "urls.py").write_text("from django.urls import path\nurlpatterns = []\n" + urls)
    for file, block in BLOCKS.items():
        if file.startswith(("mysite/", "shop/")):
            (tmp_path / file).write_text(block)
    (tmp_path / "mysite/settings.py").write_text(SETTINGS + setting)
    return tmp_path


def test_the_django_lines_pass_and_without_the_lock_the_race_is_lost(project: Path) -> None:
    ds = "--ds=mysite.settings_for_tests"
    code, said = run_pytest(project, ds, "shop")
    assert code == 0, said
    assert "13 passed" in said

    views = project / "shop/views.py"
    views.write_text(without_decorator(views.read_text()))
    code, said = run_pytest(project, ds, "shop/tests/test_race.py")
    assert code == 1, said
    (shown,) = code_blocks((DOCS / "how-to/testing.md").read_text("utf-8"), "text")
    for line in shown.splitlines():
        # How many it oversells by differs.
        assert re.search(re.escape(line).replace("200:\\ 20", "200: .*"), said), said


#: It loads its product before its lock.
LOADS_BEFORE = """
from django.http import HttpResponse
from django_distlock import locks
from shop.models import Product


def reduce_stock(request, id):
    product = Product.objects.get(id=id)
    with locks.lock(f"product_{id}"):
        product.stock -= 1
        product.save()
    return HttpResponse("sold")
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_race_ends_in_a_stale_write(project: Path, processes: int) -> None:
    (project / "shop/views.py").write_text(LOADS_BEFORE)
    race = project / "shop/tests/test_stale_writes.py"
    if processes > 1:
        race.write_text(race.read_text().replace("times=2", f"times=2, processes={processes}"))
        with (project / "mysite/settings_for_tests.py").open("a") as settings:
            settings.write(f'DISTLOCK = {{"default": {{"LOCATION": "file://{project}/locks"}}}}\n')
    code, said = run_pytest(project, "--ds=mysite.settings_for_tests", str(race))
    assert code == 1, said
    assert "StaleWrite: Product 1 was loaded before the lock 'product_1'" in said, said
    assert "in reduce_stock: product = Product.objects.get(id=id)" in said, said
    assert "in reduce_stock: product.save()" in said, said


def test_they_pass_on_a_server_of_databases(project: Path, databases: Databases) -> None:
    """It would not drop a database that a thread of the race, or a child, still has a connection to."""
    url = make_url(databases("postgresql", "testing_page"))
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.database,
        "HOST": url.host or url.query.get("host"),
        "PORT": url.port,
        "USER": url.username,
        "PASSWORD": url.password,
    }
    with (project / "mysite/settings_for_tests.py").open("a") as settings:
        settings.write(f"\nDATABASES = {{'default': {database!r}}}\n")
    races = ["shop/tests/test_race.py", "shop/tests/test_processes.py"]
    code, said = run_pytest(project, "--ds=mysite.settings_for_tests", *races)
    assert code == 0, said
    assert "2 passed" in said

    views = project / "shop/views.py"
    views.write_text(without_decorator(views.read_text()))
    code, said = run_pytest(project, "--ds=mysite.settings_for_tests", *races)
    assert code == 1
    assert "2 failed" in said, said


def test_they_pass_with_manage_py_test_as_well(project: Path) -> None:
    settings = "--settings=mysite.settings_for_tests"
    command = ["-W", "error", "-c", MANAGE, "test", "shop.tests.test_case", settings]
    code, said = run(project, *command)
    assert code == 0, said
    assert "Ran 2 tests" in said

    views = project / "shop/views.py"
    views.write_text(without_decorator(views.read_text()))
    code, said = run(project, *command)
    assert code == 1
    assert "FAILED (failures=2)" in said, said


def test_the_flask_lines_pass_and_without_the_lock_the_race_is_lost(tmp_path: Path) -> None:
    lines = snippets(DOCS / "start/flask.md")[0].replace("file://{app.instance_path}/locks", "memory://shop")
    (tmp_path / "test_shop.py").write_text(BLOCKS["test_shop.py"])
    (tmp_path / "shop.py").write_text(lines)
    code, said = run_pytest(tmp_path, "-p", "no:django", "test_shop.py")
    assert code == 0, said
    assert "3 passed" in said

    (tmp_path / "shop.py").write_text(without_decorator(lines))
    code, said = run_pytest(tmp_path, "-p", "no:django", "test_shop.py")
    assert code == 1
    assert "3 failed" in said, said
