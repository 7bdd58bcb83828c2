#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Valgrind that has pmemcheck, a fork that no package has, from a checkout of its sources: pmemcheck.sh CHECKOUT PREFIX
# The checkout stays as it is: a copy beside PREFIX is built and goes again. What fails leaves copy and log there.
# docs/pmemcheck.md says what it is for. Exit code: 2, bad input; 3, something is missing or a step failed.
set -euo pipefail

fail() {
    printf 'error: %s\nhint: %s\n' "$2" "$3" >&2
    exit "$1"
}

# step NAME COMMAND...: says NAME; what the command prints goes to the log.
step() {
    printf 'pmemcheck: %s\n' "$1" >&2
    "${@:2}" >>"$log" 2>&1 </dev/null || fail 3 "$1 failed" "the end of $log says why; then remove $build"
}

[ $# = 2 ] || fail 2 "expected two arguments" "ci/pmemcheck.sh CHECKOUT PREFIX"
checkout=$(realpath -m "$1")
prefix=$(realpath -m "$2")
build=$prefix.build
log=$prefix.log
for file in pmemcheck/pmc_main.c autogen.sh; do
    [ -f "$checkout/$file" ] ||
        fail 2 "$checkout: no $file is there" "give a checkout of the Valgrind that has pmemcheck (pmem/valgrind)"
done
[[ $prefix != *[[:space:]]* ]] || fail 2 "$prefix: there is a space in it" "name a PREFIX without: Valgrind's make takes none"
[[ $prefix/ != "$checkout"/* ]] || fail 2 "$prefix: it lies in the checkout" "name a PREFIX outside, so that the checkout stays as it is"
for tool in autoconf automake make gcc perl; do
    command -v "$tool" >/dev/null || fail 3 "$tool was not found" "apt-get install autoconf automake make gcc libc6-dev perl"
done
[ ! -e "$build" ] || fail 2 "$build: something is there" "remove it, or name another PREFIX"
mkdir -p "$prefix" 2>/dev/null && : 2>/dev/null >"$log" || fail 2 "$prefix: it cannot be written" "name another PREFIX"

copy_sources() {
    mkdir "$build"
    tar -C "$checkout" --exclude=./.git -cf - . | tar -C "$build" -xf -
}
step "copying the sources" copy_sources
cd "$build"
step "autogen.sh" ./autogen.sh
step "configure" ./configure --prefix="$prefix" --enable-only64bit
step "make, about ten minutes" make -j"$(nproc)"
step "make install" make install
step "its first run" "$prefix/bin/valgrind" --tool=pmemcheck -q true
cd /
rm -rf "$build" "$log"
printf 'built: export PMEMCHECK_VALGRIND=%s\n' "$prefix/bin/valgrind"
