#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Valgrind that has pmemcheck, a fork that no package has, from a checkout of its sources: pmemcheck.sh CHECKOUT PREFIX
# The checkout stays as it is; a copy beside PREFIX is built. docs/pmemcheck.md says what it is for.
set -euo pipefail

fail() {
    printf 'error: %s\nhint: %s\n' "$2" "$3" >&2
    exit "$1"
}

[ $# = 2 ] || fail 2 "expected two arguments" "ci/pmemcheck.sh CHECKOUT PREFIX"
checkout=$(realpath -m "$1")
prefix=$(realpath -m "$2")
[ -f "$checkout/pmemcheck/pmc_main.c" ] ||
    fail 2 "$checkout: no pmemcheck/pmc_main.c is there" "give a checkout of the Valgrind that has pmemcheck (pmem/valgrind)"
for tool in autoconf automake make gcc; do
    command -v "$tool" >/dev/null || fail 3 "$tool was not found" "apt-get install autoconf automake make gcc libc6-dev"
done
[ ! -e "$prefix.build" ] || fail 2 "$prefix.build: something is there" "remove it, or name another PREFIX"

mkdir -p "$prefix"
cp -R "$checkout" "$prefix.build"
cd "$prefix.build"
./autogen.sh
./configure --prefix="$prefix" --enable-only64bit
make -j"$(nproc)"
make install
"$prefix/bin/valgrind" --tool=pmemcheck -q true
printf 'built: export PMEMCHECK_VALGRIND=%s\n' "$prefix/bin/valgrind"
