"""The guard around a view or a function: where it stands, its transactions, its fence, its answers."""
