"""`r3llvm show`: what a recording holds."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from r3llvm.cli._console import dimensions, print_table, short_name, size
from r3llvm.cli._notes import notes
from r3llvm.recording import Launch, Recording


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The manifest, as stored.")
@click.argument("recording", type=click.Path(path_type=Path))
def command(recording: Path, as_json: bool) -> None:
    """Show what RECORDING (a folder, or a file from `r3llvm export`) holds."""
    opened = Recording.open(recording)
    manifest = opened.manifest
    if as_json:
        click.echo(manifest.model_dump_json(indent=1))
        return
    click.echo(f"{recording}: {' '.join(manifest.application)}")
    capability = f" (compute capability {manifest.capability})" if manifest.capability else ""
    click.echo(
        f"recorded {manifest.created} on {manifest.device}{capability} by r3llvm {manifest.r3llvm_version}; "
        f"{len(manifest.launches)} of {manifest.launches_seen} launches kept; {size(opened.stored_bytes())} stored"
    )
    for module in manifest.modules:
        click.echo(f"module {module.hash[:12]}: {module.source} for {module.arch}")
    for image in manifest.images:
        click.echo(f"image {image.hash[:12]}: {image.kind}, {size(image.size)}")
    table = Table("kernel", "code", "launch", "grid", "block", "shared", "regions", "memory", "changed")
    for launch in manifest.launches:
        table.add_row(
            short_name(launch.kernel),
            f"module {launch.module[:12]}" if launch.module else f"image {(launch.image or '')[:12]}",
            str(launch.index),
            dimensions(launch.grid),
            dimensions(launch.block),
            str(launch.dynamic_shared),
            str(len(launch.regions)),
            size(sum(region.size for region in launch.regions)),
            size(_changed(launch, manifest.chunk_bytes)),
        )
    print_table(table)
    for note in notes(manifest):
        click.echo(note)


def _changed(launch: Launch, chunk_bytes: int) -> int:
    """Bytes of the chunks that the launch changed."""
    return sum(
        min(chunk_bytes, region.size - number * chunk_bytes)
        for region in launch.regions
        for number, (before, after) in enumerate(zip(region.prologue, region.epilogue, strict=True))
        if before != after
    )
