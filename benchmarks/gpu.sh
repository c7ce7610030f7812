#!/usr/bin/env bash
# Runs every benchmark that needs a GPU, one after another, each within a time limit.
#   benchmarks/gpu.sh RESULTS [PROGRAMS]
# RESULTS gets <benchmark>.<device>.json and <benchmark>.log; PROGRAMS is the folder that `python -m benchmarks.prepare`
# made [build/programs]. Environment: PYTHON; BENCHMARKS, which of them and in what order; R3LLVM_BENCH_SECONDS, after
# which a benchmark begins no more rows [80]; LIMIT, after which it is ended [that and 60 more].
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

results=${1:?usage: benchmarks/gpu.sh RESULTS [PROGRAMS]}
export R3LLVM_BENCH_PROGRAMS=${2:-${R3LLVM_BENCH_PROGRAMS:-build/programs}}
export R3LLVM_BENCH_SECONDS=${R3LLVM_BENCH_SECONDS:-80}
limit=${LIMIT:-$((R3LLVM_BENCH_SECONDS + 60))}
if [[ -z ${R3LLVM_BENCH_COMMIT:-} && -e $R3LLVM_BENCH_PROGRAMS/commit ]]; then
  R3LLVM_BENCH_COMMIT=$(<"$R3LLVM_BENCH_PROGRAMS/commit")
  export R3LLVM_BENCH_COMMIT
fi

mkdir -p "$results"
failed=0
for benchmark in ${BENCHMARKS:-interposition gpu-fidelity gpu-faults recorder-overhead replay-rate}; do
  started=$SECONDS
  timeout --kill-after=30 "$limit" "${PYTHON:-python3}" -m benchmarks "$benchmark" --device gpu --output "$results" \
    >"$results/$benchmark.log" 2>&1
  status=$?
  echo "== $benchmark: status $status, $((SECONDS - started)) s"
  tail -n 12 "$results/$benchmark.log"
  [[ $status == 0 ]] || failed=1
done
exit $failed
