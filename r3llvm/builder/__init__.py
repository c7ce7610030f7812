"""Candidate → artifact: LLVM passes and PTX in a confined child, then the assembler. See Builder."""

from r3llvm.builder.artifact import Artifact, BuildStatus, Resources
from r3llvm.builder.assembler import Assembler
from r3llvm.builder.builder import Builder
from r3llvm.builder.ptx import ptx_hash

__all__ = ["Artifact", "Assembler", "BuildStatus", "Builder", "Resources", "ptx_hash"]
