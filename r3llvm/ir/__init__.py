"""What a module's bitcode tells: its kernels, their parameters, what they use. See read_kernels."""

from r3llvm.ir.module import Kernel, Parameter, instruction_counts, read_kernels, to_text

__all__ = ["Kernel", "Parameter", "instruction_counts", "read_kernels", "to_text"]
