#!/usr/bin/env bash
# Builds wasm32's standard library from the source that Debian's rust-web-src carries, into a sysroot of
# its own, and keeps it. About 80 s on two cores. Called by wasm-rust.sh.
set -euo pipefail
# shellcheck source=tests/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tests/setup/wasm-rust.sh
source "$(dirname "${BASH_SOURCE[0]}")/wasm-rust.sh"

into=$(debian_std)
work=$(mktemp -d "$tools/std-build.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src"
printf '[package]\nname = "empty"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >"$work/Cargo.toml"
printf '#![no_std]\n' >"$work/src/lib.rs"
unset RUSTFLAGS RUSTC_WRAPPER CARGO_BUILD_TARGET
export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$work/target
cd "$work"
# The library's own dependencies must lie in the registry's folder before that can be mapped away.
/usr/bin/cargo fetch --manifest-path /usr/lib/rustlib/src/rust/library/Cargo.toml --locked
mapfile -t flags < <(remap_flags)
# A page built with lto needs the bitcode.
CARGO_ENCODED_RUSTFLAGS=$(join_flags -C embed-bitcode=yes "${flags[@]}") \
    /usr/bin/cargo build --release -Z build-std=std,panic_abort,test --target "$wasm_target"

rm -rf "$into"
mkdir -p "$into/lib/rustlib/$wasm_target/lib"
for rlib in "$work/target/$wasm_target/release/deps"/lib*.rlib; do
    [[ ${rlib##*/} == libempty-* ]] || cp "$rlib" "$into/lib/rustlib/$wasm_target/lib/"
done
touch "$into/complete"
