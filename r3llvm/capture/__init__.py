"""Capturing: from a compiler command to modules in the store."""

from r3llvm.capture.store import Store, StoredModule, default_store
from r3llvm.capture.wrap import Wrap

__all__ = ["Store", "StoredModule", "Wrap", "default_store"]
