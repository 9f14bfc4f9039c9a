#!/usr/bin/env bash
# Builds the page into dist/, the same bytes wherever the tools are the same ones.
#
#   tests/build-dist.sh           builds dist/ anew
#   tests/build-dist.sh --check   builds into a folder of its own and compares with dist/; where the tools
#                                 are not those that dist/BUILD.json names, says which, and compares the
#                                 sources' fingerprint and the files' hashes alone
#
# tests/run.sh --install gets the tools.
set -euo pipefail
# shellcheck source=tests/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
# shellcheck source=tests/setup/wasm-rust.sh
source "$root/tests/setup/wasm-rust.sh"

max_wasm_bytes=550000
max_wasm_brotli_bytes=180000

check=
case ${1-} in
    '') ;;
    --check) check=1 ;;
    *) die "unknown option $1; usage: tests/build-dist.sh [--check]" ;;
esac

find_wasm_rust || die "there is no Rust for $wasm_target; run tests/run.sh --install"
for program in trunk wasm-bindgen wasm-opt brotli; do
    has "$program" || die "$program is not installed; run tests/run.sh --install"
done

dist=$root/dist
work=$(mktemp -d "${TMPDIR:-/tmp}/tokscope-page.XXXXXX")
trap 'rm -rf "$work"' EXIT
new=$work/dist

# The crates must lie in the registry's folder before it can be mapped away.
run_logged page-fetch with_wasm_rust cargo fetch --locked --target "$wasm_target" --manifest-path "$root/Cargo.toml"
run_logged page-build with_wasm_rust trunk --config "$root/viewer/Trunk.toml" --offline --skip-version-check --color never build --dist "$new"
find "$new" -type f -exec chmod 644 {} +

# What must hold of the files, wherever they were built.
kinds=$(find "$new" -type f | sed 's/.*\.//' | sort | tr '\n' ' ')
[[ $kinds == 'css html js wasm ' ]] ||
    die "one css, html, js and wasm file are expected in dist/, but trunk wrote: $(find "$new" -type f -printf '%P ')"
if grep -nE "(src|href)=[\"']?(/|https?:)|from +[\"'](/|https?:)|url\([\"']?(/|https?:)|@import" "$new"/*.html "$new"/*.css; then
    die "the lines above fetch by an absolute address; the page has to work at any path"
fi
for folder in "$root" "$HOME" "$tools" "${CARGO_HOME:-$HOME/.cargo}" "$work" /usr/src/ /usr/lib/rustlib /root/ /home/ registry/src; do
    if grep -aoE ".{0,40}$(sed 's/[][\.*^$+?(){}|/]/\\&/g' <<<"$folder").{0,60}" "$new"/* | head -n 5 | grep -a .; then
        die "the files built name $folder, a folder of this machine (see above); a --remap-path-prefix in tests/setup/wasm-rust.sh is missing"
    fi
done

brotli_sizes=()
for file in "$new"/*; do
    brotli_sizes+=("${file##*/}=$(brotli -q 11 -c "$file" | wc -c)")
done
wasm=("$new"/*.wasm)
wasm_bytes=$(wc -c <"${wasm[0]}")
wasm_brotli_bytes=$(brotli -q 11 -c "${wasm[0]}" | wc -c)
say "  the page's wasm: $wasm_bytes bytes, $wasm_brotli_bytes with brotli"
((wasm_bytes <= max_wasm_bytes)) || die "the wasm has $wasm_bytes bytes; at most $max_wasm_bytes are allowed"
((wasm_brotli_bytes <= max_wasm_brotli_bytes)) || die "the wasm has $wasm_brotli_bytes bytes with brotli; at most $max_wasm_brotli_bytes are allowed"

versions=(
    "rustc=$(with_wasm_rust rustc --version)"
    "cargo=$(with_wasm_rust cargo --version)"
    "std=$wasm_std"
    "host=$(with_wasm_rust rustc -vV | sed -n 's/^host: //p')"
    "trunk=$(trunk --version)"
    "wasm-bindgen=$(wasm-bindgen --version)"
    "wasm-opt=$(wasm-opt --version)"
)
# tests/run.sh names the one that the native tests have just built.
if [[ -z ${DIST_RECORD-} ]]; then
    run_logged dist-record cargo build --locked --manifest-path "$root/Cargo.toml" --workspace --bin dist-record
    DIST_RECORD=${CARGO_TARGET_DIR:-$root/target}/debug/dist-record
fi
record() { "$DIST_RECORD" "$@"; }

if [[ -z $check ]]; then
    rm -rf "$dist"
    cp -r "$new" "$dist"
    record write "$dist" "${versions[@]}" --brotli "${brotli_sizes[@]}"
    say "dist/ is built; commit it with the sources"
    exit 0
fi

record verify "$dist" || die "dist/ is not current; run tests/build-dist.sh and commit dist/"
rc=0
record tools "$dist" "${versions[@]}" || rc=$?
case $rc in
    0)
        for file in "$new"/*; do
            cmp "$file" "$dist/${file##*/}" ||
                die "dist/${file##*/} differs from what these sources and the same tools make here; run tests/build-dist.sh and commit dist/"
        done
        say "dist/ is byte for byte what these sources make here, with the tools it names"
        ;;
    3) say "dist/ was built with other tools (above), so only its fingerprint and its files' hashes were compared: both fit" ;;
    *) exit "$rc" ;;
esac
