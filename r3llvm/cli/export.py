"""`r3llvm export`: a recording as one file."""

from __future__ import annotations

from pathlib import Path

import click

from r3llvm.cli._console import size
from r3llvm.errors import UsageError
from r3llvm.recording import Recording, export_recording


@click.command()
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file: NAME.tar."
)
@click.option("--force", is_flag=True, help="Replace the file.")
@click.argument("recording", type=click.Path(path_type=Path))
def command(recording: Path, output: Path, force: bool) -> None:
    """Write RECORDING into one file, to send to a colleague. Every command that reads a recording reads it as it is."""
    if output.exists() and not force:
        raise UsageError(f"{output} exists already: name another with -o, or replace it with --force")
    export_recording(Recording.open(recording), output)
    click.echo(f"{output}: {size(output.stat().st_size)}")
