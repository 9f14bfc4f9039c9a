# Sourced after common.sh. Runs the stages of tests/run.sh one after the other, all of them even where one
# fails, and tells in the end what ran, what did not, and how long it took.
# shellcheck shell=bash

stage_lines=()
stage_logs=()
failed_stages=()

note_stage() { stage_lines+=("$(printf '  %-28s %-6s %4d s' "$1" "$2" "$3")"); }

# stage NAME COMMAND...: its output is shown and kept.
stage() {
    local name=$1 began=$SECONDS rc=0 log
    shift
    log=$logs/stage-${name//[^a-z]/-}.log
    say ""
    say "== $name: $*"
    set +e
    "$@" </dev/null | tee "$log"
    rc=${PIPESTATUS[0]}
    set -e
    stage_logs+=("$log")
    if ((rc == 0)); then
        note_stage "$name" ok $((SECONDS - began))
    else
        note_stage "$name" FAILED $((SECONDS - began))
        failed_stages+=("$name")
    fi
}

# The names of tests with an outcome that matches, over all stages.
tests_with() { cat "${stage_logs[@]}" | sed -nE "s/^test (.+) \.\.\. ($1).*/\1/p" | sort -u; }

summary() {
    local quick=$1 passed left_out unread line
    passed=$(cat "${stage_logs[@]}" | sed -nE 's/^test result: .* ([0-9]+) passed;.*/\1/p' | paste -sd+ | { read -r sum || sum=0; echo $((sum)); })
    # Ignored in one stage and run in another is not left out.
    left_out=$(comm -23 <(tests_with ignored) <(tests_with 'ok|FAILED'))
    say ""
    say "What ran:"
    for line in "${stage_lines[@]}"; do say "$line"; done
    [[ -z $quick ]] || say "  left out by --quick: clippy for wasm, the page built and compared, the browser tests"
    if [[ -n $left_out ]]; then
        say "Tests left out: $(wc -l <<<"$left_out")"
        while read -r line; do say "  $line"; done <<<"$left_out"
    fi
    if [[ -z ${TOKSCOPE_CORPUS-} ]]; then
        unread=$(cat "${stage_logs[@]}" | grep -E '^test .+ \.\.\. ignored.*TOKSCOPE_CORPUS|^test (.+::)?corpus_.+ \.\.\. ignored' | sort -u | wc -l)
        say "TOKSCOPE_CORPUS is not set: $unread of these need the real reports"
        # A test that passes without the files it is about says more than it knows.
        unread=$(tests_with ok | grep -E '(^|::)corpus_' || true)
        if [[ -n $unread ]]; then
            failed_stages+=("these passed without the reports they are about: ${unread//$'\n'/, }")
        fi
    fi
    if ((${#failed_stages[@]} > 0)); then
        say ""
        printf 'FAILED: %s\n' "${failed_stages[@]}"
        say "tests/run.sh: failed after $((SECONDS / 60)) min $((SECONDS % 60)) s; $passed tests passed"
        return 1
    fi
    say "tests/run.sh: all passed, $passed tests, in $((SECONDS / 60)) min $((SECONDS % 60)) s"
}
