"""What an operator of a Django site sees of its locks: the admin's page, and the debug toolbar's panel."""
