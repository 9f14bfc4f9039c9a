# Sourced after common.sh and wasm-rust.sh. What tests/run.sh needs besides Rust and a C linker: which of
# it is missing, and how it is had.
# shellcheck shell=bash

# Each item: what it is, `have_ITEM` says whether it is there, `get_ITEM` installs it, `hint_ITEM` says by
# which command it is had by hand.
native_items=(cc rustfmt clippy)
page_items=(wasm_rust trunk wasm_bindgen wasm_opt brotli chromium chromedriver fonts)

have_cc() { has cc; }
hint_cc() { say "a C linker: apt-get install gcc libc6-dev"; }
get_cc() { apt_install gcc libc6-dev; }

have_rustfmt() { cargo fmt --version >/dev/null 2>&1; }
hint_rustfmt() { say "rustfmt: rustup component add rustfmt"; }
get_rustfmt() { run_logged rustfmt timeout 120 rustup component add rustfmt; }

have_clippy() { cargo clippy --version >/dev/null 2>&1; }
hint_clippy() { say "clippy: rustup component add clippy"; }
get_clippy() { run_logged clippy timeout 120 rustup component add clippy; }

have_wasm_rust() { find_wasm_rust; }
hint_wasm_rust() { say "a Rust for $wasm_target: rustup target add $wasm_target (or, where rustup's host can't be reached, what tests/setup/wasm-rust.sh does)"; }
get_wasm_rust() { install_wasm_rust; }

have_trunk() { [[ $(trunk --version 2>/dev/null) == "trunk $trunk_version" ]]; }
hint_trunk() { say "trunk $trunk_version: cargo install trunk --version $trunk_version --locked"; }
get_trunk() { cargo_install trunk "$trunk_version" --locked; }

have_wasm_bindgen() { [[ $(wasm-bindgen --version 2>/dev/null) == "wasm-bindgen $wasm_bindgen_version" ]]; }
hint_wasm_bindgen() { say "wasm-bindgen $wasm_bindgen_version, the version in Cargo.lock: cargo install wasm-bindgen-cli --version $wasm_bindgen_version"; }
# Not --locked: one of the packages it locks can't be had from every mirror.
get_wasm_bindgen() { cargo_install wasm-bindgen-cli "$wasm_bindgen_version"; }

have_wasm_opt() { [[ $(wasm-opt --version 2>/dev/null) == "wasm-opt version ${binaryen_version%%.*} "* ]]; }
hint_wasm_opt() { say "wasm-opt ${binaryen_version%%.*}: npm install --prefix SOME-FOLDER binaryen@$binaryen_version, and its node_modules/.bin on PATH (Debian's binaryen is too old)"; }
get_wasm_opt() {
    has npm || apt_install nodejs npm
    local into=$tools/binaryen-$binaryen_version
    run_logged binaryen npm install --no-audit --no-fund --prefix "$into" "binaryen@$binaryen_version"
    ln -sfn "$into/node_modules/.bin/wasm-opt" "$tools/bin/wasm-opt"
}

have_brotli() { has brotli; }
hint_brotli() { say "brotli: apt-get install brotli"; }
get_brotli() { apt_install brotli; }

have_chromium() { has chromium || has chromium-browser || has google-chrome || has google-chrome-stable; }
hint_chromium() { say "Chromium: apt-get install chromium"; }
# Both together, so that their versions fit.
get_chromium() { apt_install chromium chromium-driver; }

have_chromedriver() { has chromedriver; }
hint_chromedriver() { say "chromedriver: apt-get install chromium-driver"; }
get_chromedriver() { apt_install chromium chromium-driver; }

have_fonts() { [[ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ]] || { has fc-list && fc-list | grep DejaVuSans.ttf >/dev/null; }; }
hint_fonts() { say "the font DejaVu Sans, for text in the page: apt-get install fonts-dejavu-core"; }
get_fonts() { apt_install fonts-dejavu-core; }

apt_updated=
apt_install() {
    has apt-get || die "apt-get is not here; install what answers to Debian's $* by hand, then run this again"
    local as_root=()
    if ((EUID != 0)); then
        has sudo || die "installing $* needs root; run as root: apt-get install $*"
        as_root=(sudo -n)
    fi
    if [[ -z $apt_updated ]]; then
        run_logged apt-update "${as_root[@]}" apt-get update
        apt_updated=1
    fi
    run_logged "apt-$1" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# Into the folder for tools; the builds share their dependencies, and what they leave is thrown away.
# The tools run for seconds, so they are built quickly and not for speed.
cargo_install() {
    local package=$1 version=$2
    shift 2
    run_logged "$package" env -u RUSTFLAGS CARGO_TARGET_DIR="$tools/cargo-build" \
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo install "$package" --version "$version" --root "$tools" --force "$@"
}

# ensure_tools INSTALL ITEM...: everything there, or installed where INSTALL is 1; else says what is
# missing, all of it, and fails.
ensure_tools() {
    local install=$1 item missing=()
    shift
    for item in "$@"; do
        "have_$item" || missing+=("$item")
    done
    ((${#missing[@]} > 0)) || return 0
    if [[ $install != 1 ]]; then
        printf 'error: missing on this machine (tests/run.sh --install installs all of it):\n' >&2
        for item in "${missing[@]}"; do
            printf '  - %s\n' "$("hint_$item")" >&2
        done
        return 1
    fi
    for item in "${missing[@]}"; do
        # One package may have brought another.
        if ! "have_$item"; then
            "get_$item"
            "have_$item" || die "$("hint_$item") -- was installed, but is still not found on PATH"
        fi
    done
    rm -rf "$tools/cargo-build"
}
