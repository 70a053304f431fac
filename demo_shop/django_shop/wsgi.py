"""The application for gunicorn: ``demo_shop.django_shop.wsgi:application``."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

# Overwrite the variable, because the environment may name another Django project.
os.environ["DJANGO_SETTINGS_MODULE"] = "demo_shop.django_shop.settings"
application = get_wsgi_application()
