"""`r3llvm list`: the recordings in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table

from r3llvm.cli._console import print_table, size
from r3llvm.errors import R3Error
from r3llvm.recording import Recording
from r3llvm.recording.source import MANIFEST


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
def command(folders: tuple[Path, ...], as_json: bool) -> int:
    """List the recordings in FOLDERS, or in recordings/."""
    table = Table("recording", "device", "kernels", "launches", "size", "recorded")
    status = 0
    for path in _recordings(folders or (Path("recordings"),)):
        try:
            recording = Recording.open(path)
            n_bytes = recording.stored_bytes()
        except R3Error as error:
            click.echo(f"r3llvm: error: {error}", err=True)
            status = 1
            continue
        manifest = recording.manifest
        if as_json:
            entry = {
                "recording": str(path),
                "device": manifest.device,
                "kernels": recording.kernels,
                "launches": len(manifest.launches),
                "bytes": n_bytes,
            }
            click.echo(json.dumps(entry | {"created": manifest.created}))
        table.add_row(
            str(path),
            manifest.device,
            str(len(recording.kernels)),
            str(len(manifest.launches)),
            size(n_bytes),
            manifest.created,
        )
    if table.row_count and not as_json:
        print_table(table)
    elif not table.row_count and not status:
        click.echo("no recordings; make one with `r3llvm record`", err=True)
    return status


def _recordings(folders: tuple[Path, ...]) -> Iterator[Path]:
    for folder in folders:
        if folder == Path("recordings") and not folder.exists():
            continue
        if not folder.is_dir() or (folder / MANIFEST).exists():
            yield folder
        else:
            yield from sorted(path for path in folder.iterdir() if (path / MANIFEST).exists() or path.suffix == ".tar")
