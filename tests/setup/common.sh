# Sourced by the scripts beside it. Where things are, which versions, how a step is shown.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Tools are kept outside of the checkout: they serve every clone, and no build can pick up their files.
tools=${TOKSCOPE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/tokscope-tools}
logs=$tools/logs
mkdir -p "$logs" "$tools/bin"
export PATH="$tools/bin:$PATH"

# The version of a package in Cargo.lock.
lock_version() {
    awk -v want="name = \"$1\"" '$0 == want { getline; gsub(/version = |"/, ""); print; exit }' "$root/Cargo.lock"
}

trunk_version=0.21.14
binaryen_version=132.0.0
# wasm-bindgen's program and crate refuse to work together unless they are the same version.
wasm_bindgen_version=$(lock_version wasm-bindgen)

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# run_logged NAME COMMAND...: the output goes to a log; a line a half minute shows that it lives,
# and a failure shows the log's end.
run_logged() {
    local name=$1 log=$logs/$1.log began=$SECONDS pid rc=0 waited=0
    shift
    say "  $name: started (log: $log)"
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        waited=$((waited + 1))
        if ((waited % 30 == 0)); then
            say "  $name: $((SECONDS - began)) s, $(tail -n 1 "$log" | tr -d '\r' | cut -c1-100)"
        fi
    done
    wait "$pid" || rc=$?
    if ((rc != 0)); then
        tail -n 40 "$log" >&2
        printf 'error: %s failed with exit code %d after %d s; the whole log is %s\n' "$name" "$rc" "$((SECONDS - began))" "$log" >&2
        return "$rc"
    fi
    say "  $name: done in $((SECONDS - began)) s"
}
