"""System checks, which ``manage.py check`` runs."""
