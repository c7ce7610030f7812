"""`r3llvm import`: an exported recording back as a folder."""

from __future__ import annotations

from pathlib import Path

import click

from r3llvm.errors import UsageError
from r3llvm.recording import Recording, import_recording


@click.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The folder to make. [recordings/NAME of NAME.tar]"
)
@click.argument("file", type=click.Path(path_type=Path))
def command(file: Path, output: Path | None) -> None:
    """Unpack FILE, which `r3llvm export` made, into a folder that can be tuned. Every hash is checked first."""
    output = output or Path("recordings") / file.stem
    if output.exists():
        raise UsageError(f"{output} exists already: name another with -o")
    import_recording(Recording.open(file), output)
    click.echo(f"{output}: imported")
