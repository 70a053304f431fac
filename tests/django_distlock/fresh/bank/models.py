"""Customers with a balance, and what hangs on one: a plan, a profile, a subclass with rows of its own."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db import models


class Plan(models.Model):
    price = models.IntegerField(default=1)


class Customer(AbstractUser):
    balance = models.IntegerField(default=5)
    wishes: Any = models.JSONField(default=dict)
    secret = models.BinaryField(default=b"")
    photo = models.FileField(blank=True)
    picture = models.ImageField(blank=True, width_field="width", height_field="height")
    width = models.IntegerField(null=True)
    height = models.IntegerField(null=True)
    plan = models.ForeignKey(Plan, null=True, on_delete=models.SET_NULL)
    seen = models.DateTimeField(auto_now=True)


class Profile(models.Model):
    customer = models.OneToOneField(Customer, on_delete=models.CASCADE, related_name="profile")
    points = models.IntegerField(default=5)
    tags: Any = models.JSONField(default=list)


class Member(Customer):
    class Meta:
        proxy = True


class Premium(Customer):
    bonus = models.IntegerField(default=5)
