"""The Lua scripts, as the server wants them called."""

from __future__ import annotations

import hashlib
from importlib import resources


class Script:
    """One script: its source, and the digest under which a server remembers it."""

    def __init__(self, *files: str) -> None:
        folder = resources.files(__package__)
        source = "\n".join((folder / file).read_text("utf-8") for file in files)
        self.source = source.encode()
        self.digest = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


REQUEST = Script("handover.lua", "request.lua")
RELEASE = Script("handover.lua", "release.lua")
CANCEL = Script("handover.lua", "cancel.lua")
RENEW = Script("renew.lua")
