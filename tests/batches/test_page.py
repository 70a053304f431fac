"""The view of docs/how-to/batches.md sells in batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django.db import models
from django.urls import path

from django_distlock import distributed_lock
from tests.batches.django_line import Answer, DjangoLine, counted_commits
from tests.databases import on
from tests.fence.conftest import STOCK

PAGE = (Path(__file__).parents[2] / "docs/how-to/batches.md").read_text("utf-8")


@on("postgresql")
def test_the_view_of_the_page(line: DjangoLine) -> None:
    block = PAGE.split("```python\n")[1].split("```")[0].replace("fence=True", f"fence={line.using!r}")
    assert "batch=32" in block

    class Product(models.Model):
        stock = models.IntegerField(db_column="qty")

        class Meta:
            app_label = "batches"
            db_table = "stock"

    names: dict[str, Any] = {
        "__name__": "shop",
        "Product": SimpleNamespace(objects=Product.objects.using(line.using)),
        "distributed_lock": distributed_lock,
    }
    exec(block, names)
    line.shop.urls.urlpatterns.append(path("product/<int:id>", names["reduce_stock"]))
    with counted_commits() as commits:
        assert line.answers("a", "b", "c") == dict.fromkeys("abc", Answer(200))
    assert (len(commits), line.left()) == (1, STOCK - 3)
