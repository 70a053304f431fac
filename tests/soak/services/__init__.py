"""The lock services of a soak, and what can be done to each of them."""
