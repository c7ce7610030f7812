"""`python -m benchmarks <benchmark> [--device …]`."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from benchmarks.gpu import device_name, this_gpu
from benchmarks.results import FOLDER, write

_NO_BENCHMARK = {"__init__", "__main__", "gpu", "prepare", "results"}
NAMES = sorted(
    file.stem.replace("_", "-") for file in Path(__file__).parent.glob("*.py") if file.stem not in _NO_BENCHMARK
)


@click.command()
@click.argument("benchmark", type=click.Choice(NAMES))
@click.option("--device", default="host", show_default=True, help="host, gpu, or the GPU's name in lower case (h200).")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, help="Where the results go."
)
def main(benchmark: str, device: str, output: Path) -> None:
    """Run a benchmark and write its figures to benchmarks/results/BENCHMARK.DEVICE.json."""
    module = importlib.import_module(f"benchmarks.{benchmark.replace('-', '_')}")
    if device not in module.DEVICES:
        if "gpu" not in module.DEVICES or device == "host":
            raise click.UsageError(f"{benchmark} runs on {', '.join(module.DEVICES)}, not on {device}")
        if device != device_name(this_gpu()):
            raise click.UsageError(f"the GPU here is {device_name(this_gpu())}, not {device}")
    if device == "gpu":
        device = device_name(this_gpu())
    metrics, rows = module.run(device)
    path = write(benchmark, device, metrics, rows, output)
    for name, metric in metrics.items():
        click.echo(f"{name}: {metric.value:g} {metric.unit}")
    click.echo(f"written to {path}")


if __name__ == "__main__":
    main()
