"""What databases have in common whose locks are advisory, and belong to sessions: all but their words."""
