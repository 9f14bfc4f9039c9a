# Sourced after common.sh. Finds, or makes, a Rust that builds for wasm32-unknown-unknown.
#
# Two ways. The usual one is rustup's target. Where rustup's host can't be reached, Debian's newer Rust
# (rustc-web, beside rustup's own) takes its place for the page alone; it comes with the source of the
# standard library but not with one built for wasm32, so that is built here once and kept.
# shellcheck shell=bash

wasm_target=wasm32-unknown-unknown
debian_packages=(rustc-web cargo-web rust-web-src rust-web-llvm rust-web-clippy lld-22)
# Raised when the way the standard library is built changes.
std_recipe=1

debian_src_version() { dpkg-query -W -f '${Version}' rust-web-src 2>/dev/null; }
debian_std() { printf '%s/wasm-std-%s-r%s' "$tools" "$(debian_src_version)" "$std_recipe"; }

debian_rust_is_there() { [[ -n $(debian_src_version) && -x /usr/bin/rustc && -x /usr/bin/cargo && -e $(debian_std)/complete ]]; }

rustup_target_is_there() {
    local dir
    dir=$(rustc --print target-libdir --target "$wasm_target" 2>/dev/null) || return 1
    compgen -G "$dir/libstd-*.rlib" >/dev/null
}

# dist/ names the compiler it was built with.
built_dist() { grep -qsF "\"rustc\": \"$("$1" --version)\"" "$root/dist/BUILD.json"; }

# Sets wasm_std (where the standard library came from), wasm_clippy (how clippy is called), and
# wasm_sysroot and wasm_bin, both empty for rustup's. Fails where there is no Rust for wasm32. Where there
# are two, the one that built dist/ is taken, so that the bytes can be compared; else rustup's.
# TOKSCOPE_WASM_RUST=rustup or =debian decides by hand.
find_wasm_rust() {
    local choices=() program
    if rustup_target_is_there; then choices+=(rustup); fi
    if debian_rust_is_there; then choices+=(debian); fi
    local choice=${TOKSCOPE_WASM_RUST-}
    if [[ -z $choice ]]; then
        choice=${choices[0]-}
        if ((${#choices[@]} == 2)) && ! built_dist rustc && built_dist /usr/bin/rustc; then choice=debian; fi
    fi
    [[ -n $choice && " ${choices[*]} " == *" $choice "* ]] || return 1

    wasm_std="as shipped with rustc" wasm_sysroot='' wasm_bin='' wasm_clippy=(cargo clippy)
    [[ $choice == debian ]] || return 0
    wasm_std="built from rust-web-src $(debian_src_version)"
    wasm_sysroot=$(debian_std)
    wasm_bin=$tools/debian-rust
    # Not `cargo clippy`, which might find rustup's.
    wasm_clippy=(cargo-clippy clippy)
    mkdir -p "$wasm_bin"
    for program in cargo rustc cargo-clippy clippy-driver; do
        ln -sfn "/usr/bin/$program" "$wasm_bin/$program"
    done
}

install_wasm_rust() {
    if [[ ${TOKSCOPE_WASM_RUST-} != debian ]] && has rustup && run_logged rustup-target timeout 90 rustup target add "$wasm_target" && find_wasm_rust; then
        return 0
    fi
    say "  rustup's target is not to be had here; Debian's Rust takes its place"
    apt_install "${debian_packages[@]}"
    run_logged wasm-std bash "$root/tests/setup/build-wasm-std.sh"
    find_wasm_rust
}

# One --remap-path-prefix a line for every folder of this machine that rustc might write into its output.
# Of two that fit, rustc takes the last.
remap_flags() {
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} dir
    printf -- '--remap-path-prefix=%s\n' "$HOME=/home" "$tools=/tools" "$cargo_home=/cargo"
    for dir in "$cargo_home"/registry/src/*/; do
        [[ -d $dir ]] && printf -- '--remap-path-prefix=%s=/crates\n' "${dir%/}"
    done
    printf -- '--remap-path-prefix=%s\n' /usr/lib/rustlib/src/rust=/rust "$(readlink -f /usr/lib/rustlib/src/rust)=/rust" "$root=/tokscope"
}

# Flags as cargo takes them where a folder's name may hold a blank.
join_flags() {
    local IFS=$'\x1f'
    printf '%s' "$*"
}

# with_wasm_rust COMMAND...: runs it with the Rust that find_wasm_rust found.
with_wasm_rust() {
    local flags=()
    mapfile -t flags < <(remap_flags)
    if [[ -n $wasm_sysroot ]]; then
        flags+=(--sysroot "$wasm_sysroot")
    else
        # With the component rust-src, rustc names the library's files where they lie on this machine;
        # without it, as they were named where it was built. Always the latter.
        flags+=("--remap-path-prefix=$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')")
    fi
    # The two compilers' caches are kept apart. Flags of this machine's own would change the result.
    env -u RUSTFLAGS -u RUSTC -u CARGO_BUILD_TARGET \
        RUSTC_WRAPPER="$root/tests/setup/rustc-wrapper.sh" \
        PATH="${wasm_bin:+$wasm_bin:}$PATH" \
        CARGO_TARGET_DIR="$root/target/wasm" \
        CARGO_ENCODED_RUSTFLAGS="$(join_flags "${flags[@]}")" \
        "$@"
}
