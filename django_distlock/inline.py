"""Fencing one row by itself: its own UPDATE stops a writer that was overtaken."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

from distlock.grants.grant import Grant

M = TypeVar("M", bound=models.Model)


class FencedQuerySet(models.QuerySet[M]):
    def fenced_update(self, grant: Grant, name: str | None = None, /, **values: Any) -> int:
        """`update`, of those rows only that no later grant than *grant* has written. Returns how many.

        ``Product.objects.filter(pk=1, stock__gte=2).fenced_update(grant, stock=F("stock") - 2)``. *name*:
        which of the grant's fences, where it has several.
        """
        fence = grant.fence if name is None else grant.fences[name]
        earlier = models.Q(fence_epoch__lt=fence.epoch) | models.Q(
            fence_epoch=fence.epoch, fence__lte=fence.number
        )
        return self.filter(earlier).update(**values, fence_epoch=fence.epoch, fence=fence.number)


class FencedModel(models.Model):
    """A model whose rows know the latest grant that has written them."""

    fence_epoch = models.IntegerField(default=0, editable=False)
    fence = models.BigIntegerField(default=0, editable=False)

    objects = FencedQuerySet.as_manager()

    class Meta:
        abstract = True
