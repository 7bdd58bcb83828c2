#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Pictures of a report, light and dark, with Debian's chromium: screenshot.sh [REPORT.html [FOLDER [WIDTH HEIGHT]]]
# Writes FOLDER/report.png and FOLDER/report-dark.png. The tests of harness/tests/cover/test_pages.py need it, too,
# and say so where it is absent.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
    exit 3
}

report=$(realpath -m "${1:-out/report.html}")
folder=${2:-docs}
size=${3:-1280},${4:-1440}
[ -f "$report" ] || fail "$report: there is no report" "make matrix writes out/report.html"
if ! command -v chromium >/dev/null; then
    command -v apt-get >/dev/null || fail "chromium was not found" "install it with your package manager"
    [ "$(id -u)" = 0 ] || fail "chromium was not found" "sudo apt-get install -y --no-install-recommends chromium"
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >&2
fi

profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
mkdir -p "$folder"

# picture NAME SCHEME: 0 is dark, 1 is light, as blink counts them
picture() {
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile" --window-size="$size" \
        --blink-settings=preferredColorScheme="$2" --screenshot="$folder/$1" "file://$report" >"$profile/log" 2>&1 ||
        fail "chromium: $(tail -n 1 "$profile/log")" "open the report in a browser instead"
    printf '%s\n' "$folder/$1"
}
picture report.png 1
picture report-dark.png 0
