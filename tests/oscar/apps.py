"""What a shop adds to django-oscar at least: it takes payment, for which oscar has a signal."""

from __future__ import annotations

import os
import urllib.request
from typing import Any

from django.apps import AppConfig


def take_payment(sender: Any, **kwargs: object) -> None:
    """Have the bank confirm the payment of a basket, as long as that takes."""
    url = f"{os.environ['SHOP_BANK']}/{sender.request.basket.pk}"
    with urllib.request.urlopen(url, data=b"", timeout=120):
        pass


class PaymentConfig(AppConfig):
    name = "tests.oscar"
    label = "bank"

    def ready(self) -> None:
        from oscar.apps.checkout.signals import pre_payment

        pre_payment.connect(take_payment, dispatch_uid="bank")
