"""A shop whose rows are loaded in the right and in the wrong places."""

from __future__ import annotations

from typing import Any

from django.db import models


class Product(models.Model):
    name = models.CharField(max_length=20, default="pen")
    stock = models.IntegerField(default=10)
    version = models.IntegerField(default=0)
    tags = models.JSONField(default=list)
    sold_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "stale_tests"

    def __str__(self) -> str:
        return self.name


class Versioned(models.Model):
    """Its UPDATE names the version that was read, as that of django-concurrency."""

    stock = models.IntegerField(default=10)
    version = models.IntegerField(default=0)

    class Meta:
        app_label = "stale_tests"

    def __str__(self) -> str:
        return f"version {self.version}"

    def _do_update(self, base_qs: Any, *args: Any) -> Any:
        return super()._do_update(base_qs.filter(version=self.version), *args)  # type: ignore[misc]


class Basket(models.Model):
    """As that of django-oscar, whose orders are numbered by their baskets: none is ordered twice."""

    owner = models.ForeignKey("auth.User", models.CASCADE, null=True)
    status = models.CharField(max_length=20, default="open")

    class Meta:
        app_label = "stale_tests"

    def __str__(self) -> str:
        return self.status


MODELS: list[type[models.Model]] = [Product, Versioned, Basket]
