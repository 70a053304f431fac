"""Settings of the Django shop as ASGI: the settings of the WSGI shop, with other routes and middleware."""

from __future__ import annotations

from demo_shop.django_shop.settings import *  # noqa: F403

ROOT_URLCONF = "demo_shop.django_shop.async_views"
# A middleware that is not async would occupy the only thread for the database during each request.
MIDDLEWARE = ["demo_shop.django_shop.middleware.name_instance_async"]
