"""What `r3llvm record` and `r3llvm show` say about a recording beyond what it holds."""

from __future__ import annotations

from collections.abc import Iterator

from r3llvm.cli._console import count, short_name, size
from r3llvm.recording import Manifest


def notes(manifest: Manifest) -> Iterator[str]:
    """What is missing and why, and what to be wary of: a line each."""
    with_module = {launch.kernel for launch in manifest.launches if launch.module}
    image_only = {launch.kernel for launch in manifest.launches} - with_module
    if image_only:
        yield (
            f"note: {count(len(image_only), 'kernel')} came without a module (image only: replayed and timed, not "
            "rebuilt); build through `r3llvm wrap` to have it"
        )
    if graphs := graph_note(manifest.graph_launches, manifest.captured_launches, "recorded"):
        yield f"note: {graphs}"
    if manifest.other_launches:
        yield (
            f"note: {count(manifest.other_processes, 'other process')} launched "
            f"{count(manifest.other_launches, 'kernel')}, not recorded"
        )
    for foreign in manifest.foreign:
        yield f"note: {size(foreign.bytes)} of {foreign.kind} cannot be recorded; kernels that reach it are refused"
    for kernel, warning in dict.fromkeys(
        (launch.kernel, warning) for launch in manifest.launches for warning in launch.warnings
    ):
        yield f"warning: {short_name(kernel)}: {warning}"
    for refusal in manifest.refusals:
        yield f"warning: not recorded: {refusal.kernel}: {refusal.reason}"


def graph_note(graphs: int, captured: int, done: str) -> str:
    """What CUDA graphs keep from being recorded or measured; "" for nothing."""
    parts = [count(graphs, "graph launch")] if graphs else []
    parts += [f"{count(captured, 'launch')} captured into graphs"] if captured else []
    return f"{' and '.join(parts)} not {done}" if parts else ""
