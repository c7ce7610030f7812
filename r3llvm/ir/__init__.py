"""What a module's bitcode tells: its kernels, their parameters, what they use. See read_kernels and elements_of."""

from r3llvm.ir.elements import Element, Elements, Place, elements_of, without_contraction
from r3llvm.ir.layout import Slot, parameter_layouts
from r3llvm.ir.module import Kernel, Parameter, instruction_counts, read_kernels, to_text
from r3llvm.ir.variables import Reach, device_variables, reach

__all__ = [
    "Element",
    "Elements",
    "Kernel",
    "Parameter",
    "Place",
    "Reach",
    "Slot",
    "device_variables",
    "elements_of",
    "instruction_counts",
    "parameter_layouts",
    "reach",
    "read_kernels",
    "to_text",
    "without_contraction",
]
