"""Models whose rows have fences of their own: an overtaken writer's UPDATE changes no row."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Update, and_, or_, update
from sqlalchemy.orm import Mapped, mapped_column

from distlock.grants.grant import Grant


class FencedMixin:
    """Mixin for models whose rows have the fence of the latest grant that `fenced_update` wrote them with."""

    fence_epoch: Mapped[int] = mapped_column(default=0, server_default="0")
    fence: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


def fenced_update(model: type[FencedMixin], grant: Grant, name: str | None = None) -> Update:
    """Return an UPDATE of those rows of *model* that no later grant than *grant* has written.

    Add conditions and values: ``fenced_update(Product, grant).where(Product.id == 1).values(stock=3)``. The
    ``rowcount`` of the result is 0 if a later grant has written the row. *name*: the name whose fence is
    compared; None: the only name of the grant.
    """
    fence = grant.fence if name is None else grant.fences[name]
    table: Any = model
    earlier = or_(
        table.fence_epoch < fence.epoch, and_(table.fence_epoch == fence.epoch, table.fence <= fence.number)
    )
    return update(model).where(earlier).values(fence_epoch=fence.epoch, fence=fence.number)
