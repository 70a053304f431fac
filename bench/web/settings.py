"""Django settings of the bench's shop: the demo's, with a `TIMEOUT` so long that nobody is refused."""

from __future__ import annotations

from bench.web import TIMEOUT
from demo_shop.django_shop import settings as demo

SECRET_KEY = "nothing is signed here"
ALLOWED_HOSTS = demo.ALLOWED_HOSTS
USE_TZ = True
ROOT_URLCONF = "bench.web.django_views"
INSTALLED_APPS = demo.INSTALLED_APPS
LOGGING = demo.LOGGING
DATABASES = demo.DATABASES
SHOP = demo.SHOP
DISTLOCK = {"default": {**SHOP.distlock()["default"], "TIMEOUT": TIMEOUT}}
