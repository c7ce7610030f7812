"""What a search found, for people and for programs."""

from r3llvm.report.summary import Build, Improvement, LaunchCosts, Summary, summarize
from r3llvm.report.table import tables

__all__ = ["Build", "Improvement", "LaunchCosts", "Summary", "summarize", "tables"]
