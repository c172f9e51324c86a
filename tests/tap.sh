# What suites written in bash share: they print TAP ("ok 1 - name"). Sourced, never run.
#   tap_check NAME COMMAND…    one test: passes when the command exits 0; shows its output when not
#   tap_checks                 tests that need not come one after the other: a line for each on standard
#                              input, name, tab, command (its functions exported); TEST_JOBS at a time
#   tap_skip NAME REASON       one test that could not run here
#   tap_programs SECONDS PATH… runs programs that print TAP themselves (cmocka does), TEST_JOBS at a
#                              time; each of their tests counts, and so does a crash
#   tap_suite NAME SECONDS SUITE   another suite's tests among our own
#   tap_build FOLDER COMPILER OPTION…   a build besides the one in $TEST_BUILD, by a suite that says
#                              "# builds: yes": called with the word "build" it makes it, and ends
#   tap_setup FOLDER COMPILER OPTION…   only what comes before the building
#   tap_done                   the plan; the last line of a suite
# shellcheck shell=bash

tap_count=0
tap_failed=0

tap_emit() { # ok|"not ok" name
    tap_count=$((tap_count + 1))
    [ "$1" = ok ] || tap_failed=$((tap_failed + 1))
    printf '%s %d - %s\n' "$1" "$tap_count" "$2"
}

tap_check() {
    local name=$1 log
    shift
    log=$(mktemp "$TEST_DIR/check.XXXXXX")
    if "$@" >"$log" 2>&1; then
        tap_emit ok "$name"
    else
        tap_emit 'not ok' "$name"
        tail -n 100 "$log" | sed 's/^/# /'
    fi
    rm -f "$log"
}

tap_said() { # path
    cat "$1.log"
    [ "$(cat "$1.status")" = 0 ]
}

tap_checks() {
    local folder name number=0
    folder=$(mktemp -d "$TEST_DIR/checks.XXXXXX")
    cat >"$folder/list"
    # shellcheck disable=SC2016 # expanded by the inner shell
    cut -f 2 "$folder/list" | awk '{ print NR; print }' | tr '\n' '\0' | xargs -0 -r -n 2 -P "${TEST_JOBS:-2}" \
        bash -c 'bash -c "$3" >"$1/$2.log" 2>&1; echo $? >"$1/$2.status"' - "$folder"
    while IFS=$'\t' read -r name _; do
        number=$((number + 1))
        tap_check "$name" tap_said "$folder/$number"
    done <"$folder/list"
    rm -rf "$folder"
}

tap_skip() {
    tap_emit ok "$1 # SKIP $2"
}

# One program into PATH.tap; its exit status is the last line.
tap_program() { # seconds out program
    CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 5 "$1" "$3" >"$2" 2>&1 </dev/null
    printf '\nexit %d\n' $? >>"$2"
}
export -f tap_program

# Renumbers one program's tests, puts its name before each, and adds a failed test when the program
# died or ran fewer tests than it had planned.
tap_merge() { # name out
    local name=$1 out=$2 line status=0 plan='' ran=0 failed_before=$tap_failed
    while IFS= read -r line; do
        case $line in
        1..[0-9]*)
            plan=${line#1..}
            plan=${plan%% *}
            ;;
        'ok '* | 'not ok '*)
            ran=$((ran + 1))
            [[ $line =~ ^(ok|not\ ok)\ *[0-9]*\ *-?\ *(.*)$ ]]
            if [[ ${BASH_REMATCH[2]} == *'# SKIP'* || ${BASH_REMATCH[2]} == *'# skip'* ]]; then
                tap_emit ok "$name: ${BASH_REMATCH[2]}"
            else
                tap_emit "${BASH_REMATCH[1]}" "$name: ${BASH_REMATCH[2]}"
            fi
            ;;
        'exit '*) status=${line#exit } ;;
        'TAP version'* | '# ok - '* | '# not ok - '* | '') ;;
        *) printf '# %s\n' "${line#\# }" ;;
        esac
    done <"$out"
    if [ "$ran" -eq 0 ]; then
        tap_emit 'not ok' "$name: ran no test (exit $status)"
    elif [ -n "$plan" ] && [ "$plan" -ne "$ran" ]; then
        tap_emit 'not ok' "$name: ran $ran of $plan tests (exit $status)"
    elif [ "$status" -ne 0 ] && [ "$tap_failed" -eq "$failed_before" ]; then
        tap_emit 'not ok' "$name: exit $status though no test failed"
    fi
}

tap_programs() {
    local seconds=$1 program out
    shift
    out=$(mktemp -d "$TEST_DIR/programs.XXXXXX")
    # shellcheck disable=SC2016 # expanded by the inner shell
    printf '%s\0' "$@" | xargs -0 -r -P "${TEST_JOBS:-2}" -I{} \
        bash -c 'tap_program "$1" "$2/$(basename "$3").tap" "$3"' - "$seconds" "$out" {}
    for program in "$@"; do
        program=$(basename "$program")
        tap_merge "${program#test_}" "$out/$program.tap"
    done
    rm -rf "$out"
}

# build.ninja is there before meson is done: interrupted then, the folder builds but tells nobody its tests.
tap_setup() { # folder compiler meson's options…
    local folder=$1 compiler=$2 family=${2/gcc/g}
    shift 2
    [ -f "$folder/build.ninja" ] && [ -f "$folder/meson-info/meson-info.json" ] && return
    rm -rf "$folder"
    CC=$compiler CXX=$family++ meson setup "$folder" "$@"
}

# A build of its own for a suite: set up once, then kept up to date.
tap_build() { # folder compiler meson's options…
    tap_setup "$@" && ninja -C "$1" -j "${TEST_JOBS:-2}"
}

# Another suite's tests among our own, each with a name before it.
tap_suite() { # name seconds suite
    local out
    out=$(mktemp "$TEST_DIR/suite.XXXXXX")
    tap_program "$2" "$out" "$3"
    tap_merge "$1" "$out"
    rm -f "$out"
}

tap_done() {
    printf '1..%d\n' "$tap_count"
    [ "$tap_failed" -eq 0 ]
}
