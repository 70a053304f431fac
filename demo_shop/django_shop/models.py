"""The shop's tables. `demo_shop.ledger` creates them, because the other frameworks use them, too."""

from __future__ import annotations

from django.db import models


class Product(models.Model):
    id = models.IntegerField(primary_key=True)
    product_name = models.CharField(max_length=100)
    stock = models.IntegerField()
    version = models.IntegerField(default=0)

    class Meta:
        managed = False
        db_table = "product"

    def __str__(self) -> str:
        return self.product_name


class KeptAnswer(models.Model):
    key = models.CharField(primary_key=True, max_length=64, db_column="idempotency_key")
    fingerprint = models.CharField(max_length=64)
    status = models.IntegerField()
    body = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "answer"

    def __str__(self) -> str:
        return self.key


class Purchase(models.Model):
    id = models.AutoField(primary_key=True)
    product = models.ForeignKey(Product, models.CASCADE)
    quantity = models.IntegerField(default=1)
    order_number = models.CharField(max_length=36)
    instance = models.CharField(max_length=50)
    stock_seen = models.IntegerField()
    created_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "purchase"

    def __str__(self) -> str:
        return self.order_number
