"""The Django application for gunicorn: ``bench.web.wsgi:application``."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ["DJANGO_SETTINGS_MODULE"] = "bench.web.settings"
application = get_wsgi_application()
