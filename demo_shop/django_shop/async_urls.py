"""Where the Django shop answers as ASGI. A view that waits for no lock is no async one: it gets a thread."""

from __future__ import annotations

from django.urls import path

from demo_shop.django_shop import async_views, views
from demo_shop.storefront import ASYNC_LINES

urlpatterns = [
    path("", views.storefront, dict(ASYNC_LINES), name="storefront"),
    path("products/<int:id>", views.show_product, name="product"),
    path("products/<int:id>/reduce", async_views.reduce_stock, name="reduce-stock"),
    *(path(f"products/<int:id>/reduce/{slug}", view) for slug, view in async_views.CHOSEN.items()),
    path("checkout", async_views.checkout, name="checkout"),
]
