"""The clients behind ``locks``, which take Django's transactions into account."""
