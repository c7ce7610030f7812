#!/usr/bin/env bash
# The format of C++ and the shell scripts. What is not installed is named and left out, except in CI.
set -euo pipefail
cd "$(dirname "$0")/.."

have() {
  command -v "$1" >/dev/null && return
  echo "lint: $1 is not installed: $2 not checked" >&2
  [[ -z ${CI:-} ]] || exit 1
  return 1
}

formatter=$(for v in 22 21 20; do command -v clang-format-$v && break; done || echo clang-format)
mapfile -t cpp < <(git ls-files '*.cpp' '*.h' '*.cu')
mapfile -t shell < <(git ls-files '*.sh' .ci/run)
if have "$formatter" "the format of C++"; then "$formatter" --dry-run -Werror "${cpp[@]}"; fi
if have shellcheck "shell scripts"; then shellcheck "${shell[@]}"; fi
