"""Where the Django shop answers."""

from __future__ import annotations

from django.urls import path

from demo_shop.django_shop import article, views

urlpatterns = [
    path("", views.storefront, name="storefront"),
    path("products/<int:id>", views.show_product, name="product"),
    path("products/<int:id>/reduce", views.reduce_stock, name="reduce-stock"),
    *(path(f"products/<int:id>/reduce/{slug}", view) for slug, view in views.CHOSEN.items()),
    path("stock/reduce", article.reduce_stock, name="article-reduce-stock"),
    path("kill", article.kill, name="article-kill"),
    path("checkout", views.checkout, name="checkout"),
]
