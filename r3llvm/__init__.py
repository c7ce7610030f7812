"""Record a CUDA kernel once, remix it at every level, replay it on its recorded memory."""

__version__ = "0.1.0"
