"""The models of the fence table, and of the admin's page of locks.

Flask apps define the same fence table, so a Django and a Flask app may share it.
"""

from __future__ import annotations

from django.db import models

from distlock.fence.stamps import TABLE


class FenceRow(models.Model):
    """The fence row of one name: the fence of the latest exclusive grant that committed in this database.

    A row with an empty name is the floor that pruned rows leave: see `distlock.fence.prune`.
    """

    id = models.CharField(primary_key=True, max_length=64, editable=False)
    namespace = models.CharField(max_length=64)
    name = models.CharField(max_length=255)
    epoch = models.IntegerField()
    number = models.BigIntegerField()
    holder_id = models.CharField(max_length=32)
    #: Microseconds since 1970 by the writer's clock, and always more than the previous writer's.
    passed_at = models.BigIntegerField()

    class Meta:
        db_table = TABLE

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name} {self.epoch}:{self.number}"


class Lock(FenceRow):
    """The model that names the admin's page of locks and its permissions. It has no table of its own.

    The permissions are ``distlock.view_lock`` and ``distlock.break_lock``.
    """

    class Meta:
        proxy = True
        verbose_name = "lock"
        default_permissions = ("view",)
        permissions = [("break_lock", "Can break lock")]

    def __str__(self) -> str:
        return f"{self.name} ({self.namespace})"
