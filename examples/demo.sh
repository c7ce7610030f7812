#!/usr/bin/env bash
# The main job on one example: wrap, run, record, replay, tune over 200 trials, show what was found. `make demo` calls it.
# R3LLVM_DEMO names the folder for what it makes, VENV the virtual environment, BUDGET the number of trials.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${R3LLVM_DEMO:-build/demo}
budget=${BUDGET:-200}
PATH="$(cd "${VENV:-.venv}/bin" && pwd):$PATH"
export R3LLVM_STORE=$folder/store

step() {
  printf '\n$ %s\n' "$*"
  "$@"
}

rm -rf "$folder"
mkdir -p "$folder"
clang=$(python -c 'from r3llvm.toolchain import find_clang; print(find_clang() or "clang++")')
step r3llvm wrap --device host -- "$clang" -O3 -x cuda examples/stencil/stencil.cu -o "$folder/stencil"
step r3llvm record --device host --max-launches 2 -o "$folder/recording" -- "$folder/stencil"
step r3llvm replay "$folder/recording"
step r3llvm tune --budget "$budget" "$folder/recording"
step r3llvm show-best "$folder/recording"
