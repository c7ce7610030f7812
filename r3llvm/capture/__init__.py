"""Capturing: from a compiler command to modules in the store.

Names are looked up when they are first used: a compiler shim that passes a command on needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r3llvm.capture.store import Store, StoredModule, default_store
    from r3llvm.capture.wrap import Wrap

__all__ = ["Store", "StoredModule", "Wrap", "default_store"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{'wrap' if name == 'Wrap' else 'store'}"), name)
