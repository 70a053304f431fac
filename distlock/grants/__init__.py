"""The public face of a grant, grants of several names, and the grants around the running code."""
