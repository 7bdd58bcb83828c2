#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes this clone ready: system packages (ci/packages.txt), .venv with the locked Python packages, the engine.
# Every step is skipped when a stamp in .venv says that it was done with the same inputs. Exit code 3: something is missing
# that this script may not or cannot install; it says what. With the name of another list of packages it installs those alone.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
# From a shell in which .venv is active: what it is made with must not be its own Python.
PATH=:${PATH//:/::}:
PATH=${PATH//":$PWD/.venv/bin:"/}
PATH=${PATH//::/:}
PATH=${PATH#:} PATH=${PATH%:}
export PATH

fail() {
    printf 'error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf 'hint: %s\n' "$2" >&2
    exit 3
}

note() { printf 'setup: %s\n' "$1" >&2; }

packages=${1:-ci/packages.txt}

missing_packages() {
    while read -r package check; do
        case $package in '' | '#'*) continue ;; esac
        bash -c "$check" </dev/null >/dev/null 2>&1 || printf '%s\n' "$package"
    done <"$packages"
}

install_packages() {
    local missing
    missing=$(missing_packages | tr '\n' ' ')
    missing=${missing% }
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || fail "system packages are missing: $missing" \
        "install them with your package manager (the names are Debian's), then run this again"
    [ "$(id -u)" = 0 ] || fail "system packages are missing: $missing" \
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing"
    note "apt-get install $missing"
    apt-get update -qq >&2 || fail "apt-get update failed"
    # shellcheck disable=SC2086 # one word a package is meant
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2 ||
        fail "apt-get install $missing failed"
    missing=$(missing_packages | tr '\n' ' ')
    [ -z "$missing" ] || fail "still missing after apt-get install: $missing" "see $packages for what was looked for"
}

# cargo from rustup need not be on the PATH of a fresh shell.
find_cargo() {
    command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    export PATH
    command -v cargo >/dev/null || fail "cargo was not found" "install Rust (stable) and put cargo on PATH, then run this again"
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    found=$(cargo --version | cut -d ' ' -f 2)
    [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ] ||
        fail "cargo is $found; $wanted or newer is needed" "install Rust (stable) with rustup, put its cargo first on PATH, then run this again"
}

is_stamped() { [ -e ".venv/.stamp-$1" ] && [ "$(cat ".venv/.stamp-$1")" = "$2" ]; }

install_python() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "python3 is $(python3 --version 2>&1 || true); 3.11 or newer is needed" "put a newer python3 first on PATH"
    local stamp
    stamp=$({ python3 -c 'import sys; print(sys.version, sys.prefix)' && cat requirements-dev.txt; } | sha256sum)
    is_stamped python "$stamp" && .venv/bin/python -c '' 2>/dev/null && return 0
    note "creating .venv with the locked Python packages"
    rm -rf .venv
    python3 -m venv .venv || fail "python3 -m venv .venv failed"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt >&2 ||
        fail "the locked Python packages could not be installed" "requirements-dev.txt lists them; see pip's message above"
    printf '%s\n' "$stamp" >.venv/.stamp-python
}

# The engine and the faultline script. Editable: Python changes need nothing, Rust changes a reinstall.
install_faultline() {
    local stamp
    stamp=$({
        pwd
        cargo --version
        find Cargo.toml Cargo.lock pyproject.toml ci/packaging crashgen oracle runner/assembler -type f \
            \( -name '*.rs' -o -name 'Cargo.*' -o -name pyproject.toml -o -path 'ci/packaging/*.py' \) -print0 |
            LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum)
    is_stamped engine "$stamp" && [ -x .venv/bin/faultline-engine ] && [ -x .venv/bin/faultline-as ] && return 0
    note "building the engine"
    # The build backend looks for maturin on PATH.
    PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --no-deps --no-build-isolation -e . >&2 ||
        fail "the engine could not be built" "cargo build --release shows the whole message"
    printf '%s\n' "$stamp" >.venv/.stamp-engine
}

install_packages
[ $# = 0 ] || exit 0
find_cargo
install_python
install_faultline
printf 'setup: %d s\n' $((SECONDS - started)) >&2
