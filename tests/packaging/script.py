"""What ``scripts/package`` runs when its tools are installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "packaging" / "distributions.py"


def load() -> ModuleType:
    """The script as a module, of which a test may replace a part."""
    spec = importlib.util.spec_from_file_location("packaging_distributions", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for their module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
