"""What a request has read before its lock, compared and mended once the lock is held."""
