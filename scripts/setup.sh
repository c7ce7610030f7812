#!/usr/bin/env bash
# Everything that `make demo`, `make test` and `make lint` need, on Debian 12 and Ubuntu 24.04. Run again, it only looks.
#   scripts/setup.sh [lint]
# PYTHON names the interpreter for the virtual environment, VENV its folder.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
llvm_versions="22 21 20" # the first is the tested one

say() { echo "setup: $*"; }
fail() {
  echo "setup: error: $*" >&2
  exit 1
}

installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
offered() { [[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [^\(] ]]; }

as_root() { # empty: already root; "sudo": allowed without a password; fails otherwise
  if [[ $(id -u) == 0 ]]; then
    return 0
  fi
  command -v sudo >/dev/null && sudo -n true 2>/dev/null && echo sudo
}

# The newest LLVM that is installed in full, else the newest that the distribution offers.
llvm_version() {
  local version
  for version in $llvm_versions; do
    if installed "clang-$version" && installed "llvm-$version-dev"; then
      echo "$version"
      return
    fi
  done
  for version in $llvm_versions; do
    if offered "clang-$version" && offered "llvm-$version-dev"; then
      echo "$version"
      return
    fi
  done
}

packages() { # of LLVM version $1
  echo "clang-$1 llvm-$1 llvm-$1-dev lld-$1 g++ cmake ninja-build make git zlib1g-dev libzstd-dev libsodium-dev" \
    "libboost-context-dev nlohmann-json3-dev"
  # Another interpreter brings its own venv and headers.
  [[ ${PYTHON:-$(command -v python3)} == /usr/bin/python3 ]] && echo "python3 python3-dev python3-venv"
  [[ $lint == 0 ]] || echo "clang-format-$1 shellcheck"
}

system_packages() {
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here: taking what is installed (clang and LLVM 20 to 22 with headers, cmake, ninja, g++, zstd," \
      "libsodium, boost.context and nlohmann-json with headers)"
    return
  fi
  local version missing=() package root
  version=$(llvm_version)
  for package in $(packages "${version:-22}"); do
    installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  if ! root=$(as_root); then
    fail "these system packages are missing; run, then try again:
  sudo apt-get update && sudo apt-get install --yes --no-install-recommends ${missing[*]}"
  fi
  say "installing ${missing[*]}"
  $root apt-get update -qq
  if [[ -z $version ]]; then # before the update nothing was known
    version=$(llvm_version)
    [[ -n $version ]] || fail "this distribution offers no clang and LLVM of versions ${llvm_versions// /, }: install one" \
      "(LLVM's own apt repository has them), then try again"
    missing=()
    for package in $(packages "$version"); do
      installed "$package" || missing+=("$package")
    done
  fi
  $root env DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get install ${missing[*]} failed"
}

virtual_environment() {
  local python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$python is older than Python 3.10: name another in PYTHON"
  if ! "$venv/bin/python" -c '' 2>/dev/null; then
    say "making the virtual environment $venv"
    "$python" -m venv --clear "$venv" || fail "$python cannot make a virtual environment: install python3-venv"
  fi
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

# Runs the command after `stamp` unless it ran before with the same text in the stamp.
unless_stamped() {
  local stamp="$venv/$1" text=$2
  shift 2
  [[ -e $stamp && $(<"$stamp") == "$text" ]] && return
  "$@"
  echo "$text" >"$stamp"
}

digest() { # of files and folders
  find "$@" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1
}

# ptxas, libdevice and the headers, where the machine has no toolkit of its own.
cuda_parts() {
  local root
  for root in "${CUDA_PATH:-}" "${CUDA_HOME:-}" /usr/local/cuda "$(dirname "$(dirname "$(command -v ptxas || echo /x/x)")")"; do
    [[ -e $root/bin/ptxas && -e $root/include/cuda_runtime.h && -d $root/nvvm/libdevice ]] && return
  done
  unless_stamped .stamp-cuda "$cuda_packages" pip_install_cuda
  # The packages lack the name that linkers look for.
  for root in "$venv"/lib/python3*/site-packages/nvidia/cu13/lib; do
    [[ -e $root/libcudart.so ]] || ln -s libcudart.so.13 "$root/libcudart.so"
  done
}
cuda_packages="nvidia-cuda-nvcc==13.0.* nvidia-cuda-runtime==13.0.* nvidia-cuda-crt==13.0.* nvidia-nvvm==13.0.* \
nvidia-cuda-cccl==13.0.*"
pip_install_cuda() {
  say "no CUDA toolkit here: installing its compiler parts from PyPI"
  # shellcheck disable=SC2086
  pip install $cuda_packages
}

python_packages() {
  unless_stamped .stamp-python "$(digest pyproject.toml)" pip_install_requirements
}
pip_install_requirements() {
  say "installing the Python packages"
  pip install 'setuptools>=77' 'pybind11>=3'
  # The requirements alone: the extension has a step, and a stamp, of its own.
  "$venv/bin/python" - >"$venv/requirements.txt" <<'EOF'
try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print("\n".join(project["dependencies"] + project["optional-dependencies"]["dev"]))
EOF
  pip install -r "$venv/requirements.txt"
}

extension() {
  local llvm_config
  llvm_config=${LLVM_CONFIG:-${LLVM_DIR:-$(for v in $llvm_versions; do command -v "llvm-config-$v" && break; done || true)}}
  unless_stamped .stamp-extension "$(digest csrc CMakeLists.txt setup.py pyproject.toml MANIFEST.in) $llvm_config" build_extension
}
build_extension() {
  say "building the extension (some minutes the first time)"
  pip install --no-build-isolation --no-deps --editable . || fail "the extension was not built: see above"
}

lint=0
[[ ${1:-} == lint ]] && lint=1
system_packages
mkdir -p build
exec 9>build/setup.lock # two at once would build into the same folder
flock 9
virtual_environment
cuda_parts
python_packages
extension
