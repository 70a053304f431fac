"""One module or folder per lock service, behind the small protocol of `distlock.backends.base`."""
