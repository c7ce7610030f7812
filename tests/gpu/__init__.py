"""Programs of the GPU benchmarks, recorded and replayed on a real GPU: `make test-gpu`."""
