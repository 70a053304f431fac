"""The commands of ``manage.py``, by their names."""
