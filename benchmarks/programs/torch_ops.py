"""PyTorch's own kernels, a library's, and what torch.compile generates; prints a hash of each result."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable

import torch


def say(name: str, result: torch.Tensor) -> None:
    data = result.detach().contiguous().cpu().numpy().tobytes()
    print(name, hashlib.sha256(data).hexdigest()[:16], flush=True)


def main() -> None:
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    x, y = torch.randn(512, 512), torch.randn(512, 512)
    x, y = x.cuda(), y.cuda()
    operations: dict[str, Callable[[], torch.Tensor]] = {
        "elementwise": lambda: torch.sin(x) * y + x.abs().sqrt(),
        "softmax": lambda: torch.softmax(x, dim=1),
        "sum": lambda: x.sum(dim=0),
        "matmul": lambda: x @ y,
        "sort": lambda: torch.sort(x.flatten()).values,
        "cumsum": lambda: torch.cumsum((x * 8).to(torch.int32).flatten(), dim=0),
        "transpose": lambda: x.t().contiguous(),
    }
    for name, operation in operations.items():
        say(name, operation())
    try:
        compiled = torch.compile(lambda a, b: torch.relu(a * 2 + b).sum(dim=1))
        say("compiled", compiled(x, y))
    except Exception as error:  # needs a C compiler, and Triton
        print("compiled", type(error).__name__)
        print(f"torch.compile: {error}"[:500], file=sys.stderr)


main()
