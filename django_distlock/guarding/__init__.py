"""The guard around a view or a function: its placement, transactions, fence and responses."""
