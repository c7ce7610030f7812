"""`r3llvm verify`: a recording against its own hashes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from r3llvm.errors import R3Error
from r3llvm.recording import Recording, problems


@click.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(recordings: tuple[Path, ...]) -> int:
    """Check the schema of RECORDINGS, and the hash of every module, image and chunk in them."""
    status = 0
    for path in recordings:
        bad = 0
        for problem in _problems(path):
            click.echo(f"r3llvm: error: {problem}", err=True)
            bad += 1
        status |= bad > 0
        click.echo(f"{path}: {bad} damaged" if bad else f"{path}: good")
    return status


def _problems(path: Path) -> Iterator[str]:
    try:
        yield from problems(Recording.open(path))
    except R3Error as error:
        yield str(error)
