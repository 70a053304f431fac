from __future__ import annotations

import subprocess
import sys


def test_without_django_the_command_to_run_is_named() -> None:
    code = "import sys; sys.modules['django'] = None; import django_distlock"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Run: pip install '/path/to/the/clone[django]'" in done.stderr
