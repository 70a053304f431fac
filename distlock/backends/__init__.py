"""The backends: a folder for each lock service, behind the protocol of `distlock.backends.base`."""
