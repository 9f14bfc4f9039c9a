#!/usr/bin/env bash
# Instructions that reading an ordinary event takes: framing, event and JSON together, for each kind of server.
# Counted by callgrind over N and 2N readings of the same body, so that the beginning falls out.
#
#   tests/parser-instructions.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
command -v valgrind >/dev/null || die "valgrind is not installed, and instructions can't be counted without it; install it (apt-get install valgrind)"
cd "$root"
program=$(cargo bench -p tokscope-collector --bench parser --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
[[ -x $program ]] || die "the benchmark was not built; see: cargo bench -p tokscope-collector --bench parser --no-run"

# Prints "EVENTS INSTRUCTIONS". Cargo says to the benchmark where its recordings are when it builds it.
count() {
    local said
    said=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" count "$1" "$2" 2>&1) || die "valgrind failed: $said"
    awk '/^events/ { events = $2 } /Collected :/ { instructions = $NF } END { print events, instructions }' <<<"$said"
}

for server in vllm sglang litellm llama.cpp; do
    read -r events once < <(count "$server" 2)
    read -r _ twice < <(count "$server" 4)
    [[ $events -gt 0 && $twice -gt $once ]] || die "nothing was counted for $server"
    echo "$server: $(((twice - once) / events)) instructions an event"
done
