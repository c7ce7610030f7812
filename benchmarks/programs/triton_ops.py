"""Two Triton kernels; prints a hash of each result."""

import hashlib

import torch
import triton
import triton.language as tl


@triton.jit
def axpy(x, y, out, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, scale * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def row_softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=inside)


def say(name: str, result: torch.Tensor) -> None:
    print(name, hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16], flush=True)


def main() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(300, 700, generator=generator).cuda()
    y = torch.randn(300, 700, generator=generator).cuda()
    out = torch.empty_like(x)
    axpy[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), 2.5, BLOCK=1024)
    say("axpy", out)
    soft = torch.empty_like(x)
    row_softmax[(x.shape[0],)](x, soft, x.shape[1], BLOCK=1024)
    say("softmax", soft)


main()
