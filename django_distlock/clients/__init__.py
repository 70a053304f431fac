"""What ``locks`` gives: clients of lock services that know of Django's transactions."""
