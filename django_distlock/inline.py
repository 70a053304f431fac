"""Models whose rows have fences of their own: an overtaken writer's UPDATE changes no row."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

from distlock.grants.grant import Grant

M = TypeVar("M", bound=models.Model)


class FencedQuerySet(models.QuerySet[M]):
    def fenced_update(self, grant: Grant, name: str | None = None, /, **values: Any) -> int:
        """Update the rows that no later grant than *grant* has written, and store its fence in them.

        Args:
            grant: The grant of the lock under which the caller writes.
            name: The name whose fence is compared and stored. None: the only name of *grant*.
            values: The new values of the fields, as for ``update()``.

        Returns:
            The number of updated rows. Rows that a later grant has written are left alone.

        Raises:
            AttributeError: *grant* has several names, and *name* is None.

        Example::

            Product.objects.filter(pk=1, stock__gte=2).fenced_update(grant, stock=F("stock") - 2)
        """
        fence = grant.fence if name is None else grant.fences[name]
        earlier = models.Q(fence_epoch__lt=fence.epoch) | models.Q(
            fence_epoch=fence.epoch, fence__lte=fence.number
        )
        return self.filter(earlier).update(**values, fence_epoch=fence.epoch, fence=fence.number)


class FencedModel(models.Model):
    """A model whose rows store the fence of the grant that last wrote them with `fenced_update`."""

    fence_epoch = models.IntegerField(default=0, editable=False)
    fence = models.BigIntegerField(default=0, editable=False)

    objects = FencedQuerySet.as_manager()

    class Meta:
        abstract = True
