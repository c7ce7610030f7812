"""Where the project's figures come from: `python -m benchmarks <benchmark> [--device …]`, one file a benchmark."""
