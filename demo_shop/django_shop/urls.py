"""Where the Django shop answers."""

from __future__ import annotations

from django.urls import path

from demo_shop.django_shop import views

urlpatterns = [
    path("", views.storefront, name="storefront"),
    path("products/<int:id>", views.show_product, name="product"),
    path("products/<int:id>/reduce", views.reduce_stock, name="reduce-stock"),
    path("checkout", views.checkout, name="checkout"),
]
