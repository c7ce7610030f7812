"""Trials on disk."""

from r3llvm.database.database import Database
from r3llvm.database.models import SCHEMA_VERSION, Session, Trial

__all__ = ["SCHEMA_VERSION", "Database", "Session", "Trial"]
