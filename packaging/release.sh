#!/usr/bin/env bash
# Makes a release from a clean commit, into target/release-VERSION:
#
#   packaging/release.sh
#
# The programs are built twice, from nothing, and have to be equal; then come the packages, a bill
# of materials of each program (CycloneDX, by cargo-cyclonedx), and SHA256SUMS. Takes two cold
# builds. Needs what packaging/build.sh needs.
set -euo pipefail
cd "$(dirname "$0")/.."

CYCLONEDX=0.5.9
[ -z "$(git status --porcelain)" ] || { echo "commit your changes first" >&2; exit 2; }
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
OUT=$(realpath -m "target/release-$VERSION")
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
FILES=(headstart headstart-lab libheadstart_preload.so)

# Both builds at one path, which OpenSSL writes into itself; of the tree nothing says where it is.
build() {
    rm -rf target/reproduced
    CARGO_TARGET_DIR=$PWD/target/reproduced CARGO_INCREMENTAL=0 \
        RUSTFLAGS="--remap-path-prefix=$PWD=/headstart --remap-path-prefix=$HOME=/home" \
        cargo build --release --locked -p headstart -p headstart-measure -p headstart-preload
    mkdir -p "$1"
    for file in "${FILES[@]}"; do
        cp "target/reproduced/release/$file" "$1"
    done
}
build "$OUT/first"
build "$OUT/programs"
for file in "${FILES[@]}"; do
    cmp "$OUT/first/$file" "$OUT/programs/$file"
done
rm -rf "$OUT/first" target/reproduced
echo "== two builds are equal"

PREFIX=$OUT/programs OUT=$OUT packaging/build.sh all >/dev/null
cargo cyclonedx --version 2>/dev/null | grep -qF "$CYCLONEDX" ||
    cargo install --locked --quiet cargo-cyclonedx --version "$CYCLONEDX"
for name in headstart measure; do
    cargo cyclonedx --quiet --format json --manifest-path "crates/$name/Cargo.toml"
done
mv crates/headstart/headstart.cdx.json "$OUT/headstart-$VERSION.cdx.json"
mv crates/measure/headstart-measure.cdx.json "$OUT/headstart-lab-$VERSION.cdx.json"
git clean --quiet --force -- '*.cdx.json'
rm -r "$OUT/programs"
cd "$OUT"
sha256sum headstart* | tee SHA256SUMS
