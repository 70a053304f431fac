"""The one settings module of the tests; what differs is set by `override_settings`."""

from __future__ import annotations

ALLOWED_HOSTS = ["*"]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DISTLOCK = {"default": {"LOCATION": "memory://django", "TIMEOUT": 5}}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_distlock"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "tests.django_distlock.urls"
SECRET_KEY = "tests only"
USE_TZ = True
