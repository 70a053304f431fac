"""The recipes of the page about exactly one order, run as they stand there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_distlock import DistLock
from tests.web.quickstart import own_environment, snippets

SETTINGS = """
ALLOWED_HOSTS = ["*"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
DISTLOCK = "memory://idempotency"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"]
INSTALLED_APPS += ["django_distlock", "shop"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
MIDDLEWARE += ["django.contrib.auth.middleware.AuthenticationMiddleware"]
ROOT_URLCONF = "urls"
SECRET_KEY = "tests only"
"""
PRODUCT = """

class Product(models.Model):
    stock = models.IntegerField()
"""
URLS = """
from django.urls import path
from shop.views import reduce_stock

urlpatterns = [path("products/<int:id>/reduce", reduce_stock)]
"""
BUY = """
import json
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0, run_syncdb=True)
from django.test import Client
from shop.models import Answer, Product
for stock in (1, 5):
    Product.objects.create(stock=stock)

def post(id, **headers):
    answer = Client().post(f"/products/{id}/reduce", headers=headers)
    return [answer.status_code, answer.content.decode(), answer.headers.get("Idempotent-Replayed")]

keys = [(1, "a"), (1, "a"), (2, "a"), (1, "b"), (1, "b")]
answers = [post(id, **{"Idempotency-Key": key}) for id, key in keys] + [post(1)]
print(json.dumps([answers, list(Product.objects.values_list("stock", flat=True))]))
"""


def check(answers: list[list[Any]], stocks: list[int]) -> None:
    statuses = [(status, replayed) for status, _, replayed in answers]
    assert statuses == [(200, None), (200, "true"), (422, None), (409, None), (409, "true"), (400, None)]
    assert json.loads(answers[0][1]) == json.loads(answers[1][1]) == {"left": 0}
    assert answers[3][1] == answers[4][1]
    assert stocks == [0, 5]


@pytest.mark.attack("A30")
def test_the_django_recipe(tmp_path: Path) -> None:
    models, views = snippets("how-to/idempotency.md")[:2]
    files = {"settings.py": SETTINGS, "urls.py": URLS, "buy.py": BUY, "shop/__init__.py": ""}
    (tmp_path / "shop").mkdir()
    for name, content in (files | {"shop/models.py": models + PRODUCT, "shop/views.py": views}).items():
        (tmp_path / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "buy.py"],
        cwd=tmp_path,
        env=own_environment() | {"DJANGO_SETTINGS_MODULE": "settings"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    check(*json.loads(done.stdout))


@pytest.mark.attack("A30")
def test_the_flask_recipe(tmp_path: Path) -> None:
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path}/shop.db"
    app.config["DISTLOCK"] = "memory://idempotency"
    db, locks = SQLAlchemy(app), DistLock(app)

    class Product(db.Model):  # type: ignore[name-defined,misc]
        id = db.Column(db.Integer, primary_key=True)
        stock = db.Column(db.Integer, nullable=False)

    exec(
        compile(snippets("how-to/idempotency.md")[2], "docs/how-to/idempotency.md", "exec"),
        {"app": app, "db": db, "Product": Product},
    )
    with app.app_context():
        db.create_all()
        db.session.add_all([Product(stock=1), Product(stock=5)])
        db.session.commit()

    def post(id: int, **headers: str) -> list[Any]:
        answer = app.test_client().post(f"/products/{id}/reduce", headers=headers)
        return [answer.status_code, answer.text, answer.headers.get("Idempotent-Replayed")]

    keys = [(1, "a"), (1, "a"), (2, "a"), (1, "b"), (1, "b")]
    answers = [post(id, **{"Idempotency-Key": key}) for id, key in keys] + [post(1)]  # noqa: A001
    with app.app_context():
        check(answers, [product.stock for product in Product.query.order_by(Product.id)])
        locks.close()
        db.engine.dispose()
