#!/usr/bin/env bash
# Everything that has to pass, in one command.
#
#   tests/run.sh             format, clippy (host and wasm), native tests, the page built and compared with
#                            dist/, and the page driven in Chromium
#   tests/run.sh --install   first installs what this machine lacks for that (Debian-like, as root; Rust by
#                            rustup has to be there). Tools go to $TOKSCOPE_TOOLS or ~/.cache/tokscope-tools
#   tests/run.sh --quick     leaves out the page and the browser, and says so
#
# Set TOKSCOPE_CORPUS to a folder of real reports to run the tests that read them; where it is not set,
# they are left out, by name.
set -euo pipefail
# shellcheck source=tests/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
# shellcheck source=tests/setup/wasm-rust.sh
source "$root/tests/setup/wasm-rust.sh"
# shellcheck source=tests/setup/tools.sh
source "$root/tests/setup/tools.sh"
# shellcheck source=tests/setup/stages.sh
source "$root/tests/setup/stages.sh"

install=0
quick=
for option in "$@"; do
    case $option in
        --install) install=1 ;;
        --quick) quick=1 ;;
        *) die "unknown option $option; usage: tests/run.sh [--install] [--quick]" ;;
    esac
done
has cargo || die "Rust is not installed; see https://rustup.rs"
if [[ -n ${TOKSCOPE_CORPUS-} ]]; then
    [[ -d $TOKSCOPE_CORPUS ]] || die "TOKSCOPE_CORPUS is '$TOKSCOPE_CORPUS', which is no folder; set it to the folder of reports, or unset it"
    TOKSCOPE_CORPUS=$(cd "$TOKSCOPE_CORPUS" && pwd)
    export TOKSCOPE_CORPUS
fi
cd "$root"

items=("${native_items[@]}")
[[ -n $quick ]] || items+=("${page_items[@]}")
began_setup=$SECONDS
# Not as part of a condition: there a failing step inside would not end it.
ensure_tools "$install" "${items[@]}"
note_stage "tools" ok $((SECONDS - began_setup))

# Always the whole workspace: another choice of packages means other features of their dependencies, and
# so a second build of those.
features=()
[[ -z ${TOKSCOPE_CORPUS-} ]] || features=(--features tokscope-tests/corpus)

stage "format" cargo fmt --all --check
stage "clippy" cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
# Most tests wait for a server's next token: more of them than cores run beside each other. One that is stuck must not
# be waited for.
stage "native tests" env RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" timeout 2400 cargo test --workspace --locked --no-fail-fast "${features[@]}"
if [[ -n ${TOKSCOPE_CORPUS-} ]]; then
    # Those inside the other packages have no feature; they are marked as ignored, with this prefix.
    stage "corpus tests" timeout 900 cargo test --workspace --locked --no-fail-fast "${features[@]}" -- --ignored corpus_
fi
if [[ -z $quick ]]; then
    stage "clippy for wasm" with_wasm_rust "${wasm_clippy[@]}" -p tokscope-viewer --target "$wasm_target" --locked -- -D warnings
    # The native tests have built it, with the features of the whole workspace.
    stage "page built, dist/ compared" env DIST_RECORD="${CARGO_TARGET_DIR:-$root/target}/debug/dist-record" tests/build-dist.sh --check
    stage "browser tests" timeout 1200 cargo test --workspace --locked --no-fail-fast --features tokscope-tests/browser,tokscope-tests/corpus --test 'page*'
fi
summary "$quick"
