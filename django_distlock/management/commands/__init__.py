"""The package whose modules Django runs as commands of ``manage.py``."""
