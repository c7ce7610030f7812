"""`r3llvm run`: an application on the device it was built for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from r3llvm.capture import Store
from r3llvm.errors import UsageError
from r3llvm.recording import application_device, check_application, host_environment


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--device",
    type=click.Choice(["host", "cuda", "auto"]),
    default="auto",
    help="Where it runs; on a GPU it is simply run. [cuda where there is a GPU, else host]",
)
@click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), help="Where its modules are. [$R3LLVM_STORE]"
)
@click.argument("application", nargs=-1, required=True, type=click.UNPROCESSED)
def command(device: str, store: Path | None, application: tuple[str, ...]) -> None:
    """Run APPLICATION: without a GPU on the CPU, with r3llvm's CUDA runtime.

    \b
    r3llvm run -- ./app args
    """
    check_application(application)
    environment = (
        dict(os.environ) if application_device(application, device) == "cuda" else host_environment(Store(store))
    )
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the application must not inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(application[0], application, environment)
    except OSError as error:
        raise UsageError(f"cannot run {application[0]}: {error.strerror}") from error
