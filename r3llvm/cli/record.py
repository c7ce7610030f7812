"""`r3llvm record`: run an application and keep what its kernels saw."""

from __future__ import annotations

from pathlib import Path

import click

from r3llvm.capture import Store
from r3llvm.cli._console import count, size
from r3llvm.errors import R3Error
from r3llvm.recording import Recorder


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The folder to make: recordings/NAME."
)
@click.option("--kernels", metavar="REGEX", help="Record kernels whose mangled or C++ name this is found in. [all]")
@click.option(
    "--max-launches", type=click.IntRange(1, 2**32 - 1), metavar="N", help="Record at most N launches of a kernel. [4]"
)
@click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), help="Where its modules are. [$R3LLVM_STORE]"
)
@click.option("--device", type=click.Choice(["host", "cuda", "auto"]), default="auto", help="Where it runs. [auto]")
@click.option("--force", is_flag=True, help="Replace the recording of that name, and the trials in it.")
@click.option("--allow-failure", is_flag=True, help="Keep what was recorded when the application fails.")
@click.argument("application", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    output: Path,
    kernels: str | None,
    max_launches: int | None,
    store: Path | None,
    device: str,
    force: bool,
    allow_failure: bool,
    application: tuple[str, ...],
) -> None:
    """Run APPLICATION and record each kernel's launches: arguments, geometry, memory before and after.

    \b
    r3llvm record -o recordings/app --max-launches 3 -- ./app args
    """
    if device == "cuda":
        raise R3Error("recording on a GPU is not supported yet: say --device host (or auto)")
    recording = Recorder(Store(store), kernels, max_launches, allow_failure).record(application, output, force)
    what = f"{count(len(recording.manifest.launches), 'launch')} of {count(len(recording.kernels), 'kernel')}"
    click.echo(f"r3llvm: recorded {what} in {output} ({size(recording.stored_bytes())})", err=True)
    for refusal in recording.manifest.refusals:
        click.echo(f"r3llvm: warning: not recorded: {refusal.kernel}: {refusal.reason}", err=True)
