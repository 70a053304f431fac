"""What ``manage.py check`` says of locks."""
