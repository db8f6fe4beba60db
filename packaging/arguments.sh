# Sourced by packaging/deb and packaging/rpm: reads their arguments. Sets $top, $build, $program, $prefix,
# $version, $out and $work.

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
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
