"""The carts, and the views of Django REST framework, as their pages write them, in a project of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distlock
from tests.web.quickstart import own_environment, snippets

SETTINGS = """
SECRET_KEY = "tests only"
ALLOWED_HOSTS = ["testserver"]
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"]
INSTALLED_APPS += ["rest_framework", "django_distlock", "shop"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DISTLOCK = "memory://pages"
ROOT_URLCONF = "urls"
USE_TZ = True
"""
MODELS = """
from django.conf import settings
from django.db import models


class Product(models.Model):
    stock = models.IntegerField()


class Cart(models.Model):
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)


class CartLine(models.Model):
    cart = models.ForeignKey(Cart, models.CASCADE)
    sku = models.IntegerField()
"""
#: What the views of the carts' page leave to the reader: they answer with what they hold.
HOLDS = "return JsonResponse(sorted(distlock.current_grant().names), safe=False)"
REST_URLS = """
from django.urls import path
from rest_framework import serializers, viewsets
from shop import views
from shop.models import Product


class Serializer(serializers.ModelSerializer):
    class Meta:
        model = Product
        fields = ["stock"]

    def validate(self, given):
        import distlock

        assert distlock.current_grant().names == ("product_1",)
        return given


class Products(viewsets.ModelViewSet):
    queryset = Product.objects.all()
    serializer_class = Serializer


urlpatterns = [
    path("function/<int:id>", views.reduce_stock),
    path("class/<int:id>", views.ReduceStock.as_view()),
    path("products/<int:pk>/", Products.as_view({"put": "update"}), name="product-detail"),
]
"""
CART_URLS = """
from django.urls import path
from shop import views

urlpatterns = [path("body", views.of_body), path("database", views.of_database)]
"""
READY = """
import json
import django

django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from shop.models import Cart, CartLine, Product

call_command("migrate", run_syncdb=True, verbosity=0)
call_command("check", fail_level="ERROR")
client = Client()


def said(response):
    print(json.dumps([response.status_code, response.json()]))
"""


def answers(folder: Path, settings: str, views: str, urls: str, requests: str) -> list[Any]:
    """What the *requests* of a project with these lines say."""
    (folder / "shop").mkdir()
    (folder / "shop/__init__.py").touch()
    (folder / "settings.py").write_text(SETTINGS + settings)
    (folder / "shop/models.py").write_text(MODELS)
    (folder / "shop/views.py").write_text(views)
    (folder / "urls.py").write_text(urls)
    done = subprocess.run(
        [sys.executable, "-c", READY + requests],
        cwd=folder,
        env=own_environment() | {"DJANGO_SETTINGS_MODULE": "settings"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def test_a_cart_is_locked_as_a_whole(tmp_path: Path) -> None:
    from_body, from_database, held, _, _ = snippets("how-to/carts.md")
    views = "import distlock\nfrom django.contrib.auth.decorators import login_required\n"
    views += "from django.http import JsonResponse\nfrom django_distlock import distributed_lock\n"
    views += "from shop.models import CartLine\n"
    views += from_body.replace("checkout(request): ...", f"of_body(request):\n    {HOLDS}\n")
    body = f"of_database(request):\n    {held}    assert held\n    {HOLDS}\n"
    views += from_database.replace("checkout(request): ...", body)
    requests = """
lines = [{"sku": 7}, {"sku": 3}, {"sku": 7}]
said(client.post("/body", {"lines": lines}, content_type="application/json"))
said(client.post("/body", {"lines": []}, content_type="application/json"))
user = User.objects.create_user("anna")
cart = Cart.objects.create(user=user)
CartLine.objects.bulk_create(CartLine(cart=cart, sku=sku) for sku in (4, 2))
client.force_login(user)
said(client.post("/database"))
"""
    body_, empty, database = answers(tmp_path, "", views, CART_URLS, requests)
    assert body_ == [200, ["product_3", "product_7"]]
    assert (empty[0], empty[1]["code"]) == (400, "lock_name_invalid")
    assert database == [200, ["cart_1", "product_2", "product_4"]]


def test_locks_of_several_clients_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    *_, over_several = snippets("how-to/carts.md")
    exec(re.sub(r'"(redis|zookeeper)://[^"]*"', '"memory://carts"', over_several), {"distlock": distlock})
    assert "Fence(epoch=1" in capsys.readouterr().out


@pytest.mark.parametrize("contended", [False, True])
def test_the_views_of_rest_framework_sell_and_answer(tmp_path: Path, contended: bool) -> None:
    views, rule = snippets("how-to/rest.md")
    requests = """
Product.objects.create(stock=5)
from distlock.testing import contended
import contextlib
with contended("product_1") if CONTENDED else contextlib.nullcontext():
    said(client.post("/function/1"))
    said(client.post("/class/1"))
    said(client.put("/products/1/", {"stock": 9}, content_type="application/json"))
""".replace("CONTENDED", str(contended))
    got = answers(tmp_path, rule, views, REST_URLS, requests)
    if contended:
        assert [(status, body["code"]) for status, body in got] == [(423, "lock_contended")] * 3
    else:
        assert got == [[200, {"left": 4}], [200, {"left": 3}], [200, {"stock": 9}]]


def test_writers_beside_the_views_take_their_locks(tmp_path: Path) -> None:
    by_hand, _, _, action, _, _, script = snippets("how-to/writers.md")
    lines = """
import distlock

view_of = distlock.connect("memory://pages", prefix="shop")


def restock(id):
    print(json.dumps([view_of.lock(f"product_{id}").locked()]))


class Noted(Product):
    class Meta:
        app_label = "shop"
        proxy = True

    def save(self):
        super().save()
        locked = [view_of.lock(f"product_{id}").locked() for id in (1, 2, 3)]
        print(json.dumps([self.pk, self.stock, *locked]))


product_id = Product.objects.create(stock=0).pk
Product.objects.create(stock=0)
Product.objects.create(stock=0)
"""
    script = script.replace("redis://localhost:6379/0", "memory://pages")
    call = "add_ten(None, None, Noted.objects.filter(pk__lt=3).order_by('pk'))\n"
    setting = 'DISTLOCK = {"default": {"LOCATION": "memory://pages", "PREFIX": "shop"}}\n'
    got = answers(tmp_path, setting, "", "urlpatterns = []", f"{lines}{by_hand}{action}{call}{script}")
    assert got == [[True], [1, 10, True, True, False], [2, 10, True, True, False], [True]]


ADMIN = """
INSTALLED_APPS += ["django.contrib.admin", "django.contrib.messages"]
MIDDLEWARE += ["django.contrib.messages.middleware.MessageMiddleware"]
MIDDLEWARE += ["django_distlock.middleware.DistlockMiddleware"]
DATABASES["default"]["ATOMIC_REQUESTS"] = True
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {
    "context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]
}}]
"""
ADMIN_URLS = """
import distlock
from django.contrib import admin
from django.http import JsonResponse
from django.urls import path
from shop.models import Product


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    actions = ["add_ten"]

    def add_ten(self, request, queryset):
        return JsonResponse(sorted(distlock.current_grant().names), safe=False)


urlpatterns = [path("admin/", admin.site.urls)]
"""


def test_an_action_of_the_admin_is_locked_before_the_transaction_of_its_request(tmp_path: Path) -> None:
    rules, when = snippets("how-to/writers.md")[4:6]
    (tmp_path / "rules.py").write_text(when)
    settings = ADMIN + rules.replace("shop.rules.", "rules.")
    requests = """
for _ in range(3):
    Product.objects.create(stock=0)
client.force_login(User.objects.create_superuser("anna"))
said(client.post("/admin/shop/product/", {"action": "add_ten", "_selected_action": [3, 1]}))
print(json.dumps([client.get("/admin/shop/product/").status_code]))
"""
    assert answers(tmp_path, settings, "", ADMIN_URLS, requests) == [[200, ["product_1", "product_3"]], [200]]
