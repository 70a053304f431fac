"""The routes of the Django shop."""

from __future__ import annotations

from django.conf import settings
from django.urls import path

from demo_shop.django_shop import rush, views

urlpatterns = [
    path("", views.storefront, name="storefront"),
    path("products/<int:id>", views.show_product, name="product"),
    path("products/<int:id>/reduce", views.reduce_stock, name="reduce-stock"),
    *(path(f"products/<int:id>/reduce/{slug}", view) for slug, view in views.CHOSEN.items()),
    *(path(f"rush/{way}/<int:id>", view) for way, view in rush.VIEWS.items()),
    path("stock/reduce", views.reduce_stock_of_query, name="article-reduce-stock"),
    path("kill", views.kill, name="article-kill"),
    path("checkout", views.checkout, name="checkout"),
]
if settings.SHOP.has_readers:
    from demo_shop.django_shop import readers

    urlpatterns += [
        path("readers/purchase/<int:id>", readers.purchase),
        path("readers/report", readers.report),
        path("readers/report/shared", readers.shared_report),
        path("readers/pay", readers.pay),
        path("readers/pay/limited", readers.limited_pay),
    ]
