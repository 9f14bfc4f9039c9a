#!/usr/bin/env bash
# Coverage-guided fuzzing of the reader of chat streams, by libFuzzer on the stable compiler.
#
#   tests/fuzz/run.sh [SECONDS]   builds, seeds from the recordings and the kept corpus, fuzzes (default 60 s) on
#                                 one core, prints executions and edges; exits with 1 on a finding and says where
#                                 the input lies. Recordings also come from $TOKSCOPE_CORPUS/../transcripts.
#   tests/fuzz/run.sh --keep      makes the kept corpus (tests/fuzz/corpus) the few inputs that reach all edges
#                                 which the last runs reached
#   tests/fuzz/run.sh FILE...     runs these inputs only
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/target/fuzz
kept=$here/corpus
findings=$work/findings
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
command -v cargo >/dev/null || die "Rust is not installed; see https://rustup.rs"
command -v g++ >/dev/null || command -v c++ >/dev/null || die "no C++ compiler for libFuzzer; install g++"

mode=fuzz seconds=60
case ${1-} in
    "") ;;
    --keep) mode=keep ;;
    *[!0-9]*) mode=inputs ;;
    *) seconds=$1 ;;
esac

# Flags with a target of its own apply to what is fuzzed, not to build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
flags+=" -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Ccodegen-units=1 --cfg fuzzing"
flags+=" -Zsanitizer=address"
mkdir -p "$work/corpus" "$findings" "$kept"
RUSTC_BOOTSTRAP=1 RUSTFLAGS=$flags CARGO_TARGET_DIR=$work \
    cargo build --release --locked --manifest-path "$here/Cargo.toml" --target "$host"
fuzzer=$work/$host/release/reader
# Nothing here frees by hand, and the leak check needs rights that a container may not give.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1

if [[ $mode = inputs ]]; then
    exec "$fuzzer" "$@"
fi
if [[ $mode = keep ]]; then
    rm -rf "$work/merged"
    mkdir "$work/merged"
    "$fuzzer" -set_cover_merge=1 -use_counters=0 -max_len=1024 "$work/merged" "$kept" "$work/corpus"
    rm -rf "$kept"
    mv "$work/merged" "$kept"
    echo "$(find "$kept" -type f | wc -l) inputs of $(du -bs "$kept" | cut -f1) bytes are kept in $kept"
    exit
fi

# Seeds: the beginning of each recorded body as it is, and some of its events on lines.
seeds=$work/seeds
rm -rf "$seeds"
mkdir "$seeds"
folders=("$root/collector/tests/fixtures/transcripts")
[[ -d ${TOKSCOPE_CORPUS-}/../transcripts && -n ${TOKSCOPE_CORPUS-} ]] && folders+=("$TOKSCOPE_CORPUS/../transcripts")
number=0
while IFS= read -r -d '' file; do
    number=$((number + 1))
    # `sed` reads on to the end: a closed pipe would be an error here.
    body() { sed '1,/^\r\?$/d' "$file"; }
    { printf '\x00\x28'; body | sed -n '1,12p'; } >"$seeds/$number-body"
    body | grep -a -o '^data:.*' >"$seeds/payload" || true
    if [[ -s $seeds/payload ]]; then
        { printf '\x01\x28'; sed -n '1,4p' "$seeds/payload" | sed 'G'; } >"$seeds/$number-payload"
        { printf '\x02\x28'; sed -n '1,3p;$p' "$seeds/payload" | sed 's/^data: //'; } >"$seeds/$number-events"
    else
        { printf '\x02\x28'; body; } | head -c 2048 >"$seeds/$number-events" || true
    fi
    rm "$seeds/payload"
done < <(find "${folders[@]}" -name '*.response.http' -print0)
echo "$number recordings seed the fuzzer, beside $(find "$kept" -type f | wc -l) kept inputs; $seconds s on one core"

log=$work/last-run.log
rc=0
"$fuzzer" -max_total_time="$seconds" -max_len=2048 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -dict="$here/reader.dict" -artifact_prefix="$findings/" "$work/corpus" "$kept" "$seeds" >"$log" 2>&1 || rc=$?
executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
edges=$(grep -a -o ' cov: [0-9]*' "$log" | tail -n 1 | tr -dc '0-9')
corpus=$(grep -a -o ' corp: [^ ]*' "$log" | tail -n 1)
echo "${executions:-?} executions, ${edges:-?} edges,$corpus"
if ((rc != 0)); then
    tail -n 40 "$log"
    die "a finding (or the fuzzer itself failed): inputs lie in $findings, the log is $log; run one again with tests/fuzz/run.sh FILE"
fi
echo "no finding"
