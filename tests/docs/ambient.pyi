"""What the pages take as given: the names of a reader's project, for the blocks that don't define them."""

import json as json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.contrib.auth.decorators import login_required as login_required
from django.db import models as models
from django.http import HttpResponse as HttpResponse
from django.urls import path as path
from django.views import View as View
from flask import Flask

import distlock as distlock
from distlock import Grant, Locks
from django_distlock import distributed_lock as distributed_lock
from flask_distlock import DistLock as DistLock

BASE_DIR: Path
DATABASES: dict[str, dict[str, Any]]
INSTALLED_APPS: list[str]
MIDDLEWARE: list[str]
urlpatterns: list[Any]

app: Flask
db: Any
locks: Locks
grant: Grant
product_id: int

def write(day: int) -> str: ...

class CartLine(models.Model): ...

class Product(models.Model):
    stock: int

restock: Callable[[int], object]

# A catalogue, and a gateway.
catalogue: dict[str, int]

def charge(order: str) -> str: ...
