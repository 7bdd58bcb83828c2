#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the image that holds faultline (ci/Dockerfile) and says what takes its room: docker.sh [NAME]
# NAME is faultline unless given.
# An image that ci/Dockerfile begins with and that cannot be pulled is made here: Debian by debootstrap, from the mirror of this
# machine's apt-get, and on top of it this machine's Rust. BASE, RUST: other images to begin with. DEBIAN_MIRROR: another mirror.
# docs/docker.md says how the image is used. Exit code: 2, bad input; 3, something is missing or a step failed.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
SUITE=bookworm
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
CERTIFICATES=/usr/local/share/certificates-of-the-host.crt

fail() {
    printf 'error: %s\nhint: %s\n' "$2" "$3" >&2
    exit "$1"
}

note() { printf 'image: %s\n' "$1" >&2; }

# step NAME COMMAND...: says NAME; what the command prints goes to the log.
step() {
    local said
    note "$1"
    "${@:2}" >>"$log" 2>&1 </dev/null && return 0
    said=$(tail -n 100 "$log" | sed 's/\x1b\[[0-9;]*m//g' | grep -i 'error\|^E: ' | tail -n 1)
    fail 3 "$1 failed: ${said:0:200}" "the end of $log says more"
}

check_engine() {
    local said
    command -v docker >/dev/null || fail 3 "docker was not found" "install Docker (Debian: apt-get install docker.io)"
    said=$(docker version --format '{{.Server.Version}}' 2>&1) && return 0
    said=$(tail -n 1 <<<"$said")
    case $said in
    *'permission denied'*)
        fail 3 "you may not use the Docker engine: $said" "run this as root, or as a member of the group docker"
        ;;
    *) fail 3 "no Docker engine answers: $said" "start it (systemctl start docker), or name one in DOCKER_HOST" ;;
    esac
}

# of_dockerfile BASE|RUST: the image that is meant where none is given.
of_dockerfile() { sed -n "s/^ARG $1=//p" ci/Dockerfile; }

is_there() { docker image inspect "$1" >/dev/null 2>&1 || docker pull --quiet "$1" >>"$log" 2>&1; }

# found NAME IMAGE: whether IMAGE is there; else it is to be made, unless the user named it in the variable NAME.
found() {
    is_there "$2" && return 0
    [ -z "${!1:-}" ] || fail 3 "$2: there is no such image, and it cannot be pulled: $(tail -n 1 "$log")" "name another one in $1"
    note "$2 cannot be pulled, and is made here"
    return 1
}

of_apt() { # of_apt KEY: what this machine's apt-get is told
    local value=
    ! command -v apt-config >/dev/null || eval "$(apt-config shell value "$1")"
    printf '%s' "$value"
}

# The mirror's lines for sources.list. An archive that apt-get has no list of yet is known by the name in its sources.
sources() {
    if [ -n "${DEBIAN_MIRROR:-}" ]; then
        printf 'deb %s %s main\n' "$DEBIAN_MIRROR" "$SUITE"
    elif command -v apt-get >/dev/null; then
        # shellcheck disable=SC2016 # apt-get fills these in
        apt-get indextargets --format '$(SITE) $(RELEASE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
            awk -v suite="$SUITE" '$NF == "main" && $(NF-1) ~ "^" suite "(-updates|-security)?$" && !seen[$0]++ {
                print "deb", $1, $(NF-1), "main" }'
    fi
}

make_debian() {
    local site
    command -v debootstrap >/dev/null || fail 3 "debootstrap was not found" "apt-get install debootstrap"
    [ "$(id -u)" = 0 ] || fail 3 "only root can make Debian's image by debootstrap" "run this with sudo, or name an image in BASE"
    sources >"$work/sources.list"
    site=$(awk -v suite="$SUITE" '$3 == suite { print $2; exit }' "$work/sources.list")
    [ -n "$site" ] || fail 3 "apt-get here has no mirror of Debian $SUITE" "name one: DEBIAN_MIRROR=URL"
    [ -f "$KEYRING" ] || fail 3 "$KEYRING is not there" "apt-get install debian-archive-keyring"
    step "debootstrap" debootstrap --variant=minbase --keyring="$KEYRING" "$SUITE" "$work/debian" "$site"
    cp "$work/sources.list" "$work/debian/etc/apt/sources.list"
    # As Debian's slim images: no manuals, and none come with what is installed later.
    local folders="doc groff info linda lintian locale man"
    for folder in $folders; do
        printf 'path-exclude /usr/share/%s/*\n' "$folder"
    done >"$work/debian/etc/dpkg/dpkg.cfg.d/docker"
    printf 'path-include /usr/share/doc/*/copyright\n' >>"$work/debian/etc/dpkg/dpkg.cfg.d/docker"
    for folder in $folders; do
        [ ! -d "$work/debian/usr/share/$folder" ] ||
            find "$work/debian/usr/share/$folder" ! -type d ! -path '*/doc/*/copyright' -delete
    done
    rm -rf "$work/debian"/var/cache/apt/* "$work/debian"/var/lib/apt/lists/* "$work/debian"/var/log/*
}

# import NAME OPTION...: the folder, as an image.
import() {
    tar -C "$work/debian" --one-file-system --exclude='./dev/*' -c . | docker import "${@:2}" - "$1"
}

# cargo and rustc of the host, and how it reaches its registries. Of this nothing is in the image that is built.
add_rust() {
    local sysroot index config=${CARGO_HOME:-$HOME/.cargo}/config.toml bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    local usr=$work/debian/usr/local
    local hint="install Rust (stable) with rustup, or name an image in RUST"
    sysroot=$(rustc --print sysroot 2>/dev/null) || fail 3 "cargo was not found" "$hint"
    [ "$sysroot" != /usr ] || fail 3 "cargo is Debian's, and cannot be copied" "$hint"
    mkdir -p "$usr/bin" "$usr/lib" "$usr/cargo"
    cp "$sysroot"/bin/cargo "$sysroot"/bin/rustc "$usr/bin/"
    cp -r "$sysroot"/lib/. "$usr/lib/"
    changes=(--change "ENV CARGO_HOME=/usr/local/cargo")
    [ ! -f "$config" ] || cp "$config" "$usr/cargo/config.toml"
    if [ -f "$bundle" ]; then
        cp "$bundle" "$work/debian$CERTIFICATES"
        changes+=(--change "ENV SSL_CERT_FILE=$CERTIFICATES PIP_CERT=$CERTIFICATES CARGO_HTTP_CAINFO=$CERTIFICATES")
    fi
    index=$(python3 -m pip config get global.index-url 2>/dev/null) || index=
    [ -z "$index" ] || changes+=(--change "ENV PIP_INDEX_URL=$index")
}

clean_up() {
    [ -z "${made[*]}" ] || docker rmi "${made[@]}" >/dev/null 2>&1 || true
    docker image prune --force --filter label=faultline.stage=wheel >/dev/null 2>&1 || true
    rm -rf "$work"
}

[ $# -le 1 ] || fail 2 "expected one argument, the name of the image" "ci/docker.sh [NAME]"
name=${1:-faultline}
[[ $name =~ ^[a-z0-9][a-z0-9._/:-]*$ ]] ||
    fail 2 "$name: is no name of an image" "Docker's are of small letters, digits and . _ - / :"
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
check_engine
work=$(mktemp -d "${TMPDIR:-/var/tmp}/faultline-image-XXXXXX")
made=()
trap clean_up EXIT
trap 'exit 3' INT TERM
log=${TMPDIR:-/tmp}/faultline-image-$(id -u).log
: >"$log"

http_proxy=${http_proxy:-$(of_apt Acquire::http::Proxy)}
https_proxy=${https_proxy:-$(of_apt Acquire::https::Proxy)}
options=(--network host --force-rm)
for variable in http_proxy https_proxy no_proxy; do
    [ -z "${!variable:-}" ] || { export "${variable?}" && options+=(--build-arg "$variable"); }
done
told=
for key in Acquire::Check-Valid-Until Acquire::Check-Date; do
    value=$(of_apt "$key")
    [ -z "$value" ] || told+=" -o $key=$value"
done
options+=(--build-arg "APT_OPTIONS=$told")

base=${BASE:-$(of_dockerfile BASE)}
rust=${RUST:-$(of_dockerfile RUST)}
if ! found BASE "$base"; then
    base=faultline-base:$$
    make_debian
    made+=("$base")
    step "importing Debian" import "$base"
fi
if ! found RUST "$rust"; then
    rust=faultline-rust:$$
    [ -d "$work/debian" ] || make_debian
    add_rust
    made+=("$rust")
    step "importing Rust" import "$rust" "${changes[@]}"
fi
options+=(--build-arg "BASE=$base" --build-arg "RUST=$rust")
step "docker build" docker build "${options[@]}" -f ci/Dockerfile -t "$name" .

bytes=$(docker image inspect --format '{{.Size}}' "$name")
printf '%s: %d MB, built in %d s\n' "$name" $((bytes / 1000000)) $((SECONDS - started))
docker run --rm --interactive --network none --user 0 --entrypoint python3 "$name" - <<'END'
# By Debian's packages, and by folders where dpkg knows of none. What is linked twice counts once.
from pathlib import Path

MOST = 24
seen, sizes = set(), {}


def count(name, paths):
    for path in paths:
        if path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        if status.st_ino not in seen:
            seen.add(status.st_ino)
            sizes[name] = sizes.get(name, 0) + status.st_size


for listed in Path("/var/lib/dpkg/info").glob("*.list"):
    count(listed.stem.partition(":")[0], map(Path, listed.read_text().splitlines()))
for folder in [*Path("/opt/faultline").glob("lib/python3*/site-packages/*"), Path("/opt/faultline"), Path("/cache")]:
    count(str(folder), folder.rglob("*"))
count("git", [Path("/usr/bin/git"), *Path("/usr/lib/git-core").rglob("*")])
for name in sorted(sizes, key=sizes.get, reverse=True)[:MOST]:
    print(f"{sizes.pop(name) / 1e6:7.1f} MB  {name}")
print(f"{sum(sizes.values()) / 1e6:7.1f} MB  {len(sizes)} others")
END
