"""Creates the permissions of the admin's page of locks. The model `Lock` has no table of its own."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("distlock", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Lock",
            fields=[],
            options={
                "verbose_name": "lock",
                "permissions": [("break_lock", "Can break lock")],
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("distlock.fencerow",),
        ),
    ]
