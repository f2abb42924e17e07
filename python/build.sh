#!/bin/bash
# Builds the Python package's wheel, with the library and the command inside, from what make has built. Arguments: the
# directory for the wheel (default: target/wheel). PYTHON names the interpreter, whose setuptools and wheel are used; no
# network is. REAM_RELEASE is the directory with the built files, for the Makefile.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd .. && pwd)
release=${REAM_RELEASE:-${CARGO_TARGET_DIR:-$root/target}/release}
wheels=${1:-${CARGO_TARGET_DIR:-$root/target}/wheel}
python=${PYTHON:-/usr/bin/python3}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' ../Cargo.toml | head -n 1)
if ! grep -qx "VERSION = \"$version\"" src/ream/_version.py; then
    echo "python/build.sh: src/ream/_version.py does not say $version, as Cargo.toml does" >&2
    exit 1
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -R pyproject.toml setup.py README.md src "$stage"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
cp ../LICENSE-MIT ../LICENSE-APACHE "$stage"

# As an installation has them, since the command looks for the libraries from where it is.
native=$stage/src/ream/_native
files=(bin/ream lib/ream/libream.so lib/ream/libream_calls.so lib/ream/libream_inside.so)
for file in "${files[@]}"; do
    built=$release/${file##*/}
    if [[ ! -f $built ]]; then
        echo "python/build.sh: $built: not built yet; run make first" >&2
        exit 1
    fi
    mode=644
    [[ $file == bin/* ]] && mode=755
    install -D -m "$mode" "$built" "$native/$file"
done

mkdir -p "$wheels"
rm -f "$wheels"/ream-*.whl
"$python" -m pip --disable-pip-version-check wheel --quiet --no-index --no-deps --no-build-isolation \
    --no-cache-dir --wheel-dir "$wheels" "$stage"
ls "$wheels"/ream-*.whl
