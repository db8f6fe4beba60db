# Sourced by packaging/deb and packaging/rpm: reads their arguments, and makes below $work the trees of
# the two packages, job-exec-rs-connector, which running shells keep mapped, and job-exec-rs, all else.
# Sets $version and $out, and $about, which says what the packages are for.

set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/target/release prefix='' version=''
while [ $# -gt 1 ]; do
    case $1 in
    --build) build=$2 ;;
    --prefix) prefix=$2 ;;
    --version) version=$2 ;;
    *) break ;;
    esac
    shift 2
done
case ${1:-} in
-*)
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
out=$(realpath -m "${1:-$top/target/packages}")
program=$build/job-exec-rs
[ -n "$version" ] || version=$("$program" --version | cut -d' ' -f2)
about='A job execution service for Flux that starts job shells as transient units of
systemd, so that jobs outlive their brokers.'
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

# usage: files NAME [FIND-ARGUMENT...]. The files of a package, as they are when it is installed.
files() {
    (cd "$work/$1" && shift && find . ! -type d -not -path './DEBIAN/*' "$@" | sed 's/^\.//' | sort)
}

# usage: move NAME. Where it is in job-exec-rs, to where it is in the connector's package.
move() {
    local from=$work/job-exec-rs$1 to=$work/job-exec-rs-connector$1
    mkdir -p "${to%/*}"
    mv "$from" "$to"
    rmdir "${from%/*}" 2>/dev/null || true
}

# Without a prefix, where the Flux of this machine looks.
"$program" install ${prefix:+--prefix "$prefix"} --destdir "$work/job-exec-rs" >/dev/null
for file in $(files job-exec-rs -name 'resume.*'); do move "$file"; done
