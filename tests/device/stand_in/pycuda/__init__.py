"""As much of PyCUDA as r3llvm.runner.worker uses, for machines that have none: over ctypes, for the stand-in driver."""
