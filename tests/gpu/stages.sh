# What tests/gpu/first and tests/gpu/second share. Sourced, never run: they name their stages, each a
# function of its own here, and call run_stages. Each stage is a process that has so many seconds; what
# it says goes to STAGE.running in the folder OUT and at its end into FILE.txt there, where "ok - …" and
# "not ok - …" are its tests and "= …" the rows of the table. Nothing ends at a stage's failure. After
# each stage, summary.txt has its rows, so what is killed loses nothing.
# shellcheck shell=bash

self=$(realpath "$0")
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# Both scripts within 15 minutes, of which a start and the transfers take some.
declare -A seconds_of=([first]=480 [second]=270)
name=$(basename "$0")
small='' seconds=${seconds_of[$name]:-480} out=results-$name stage=''
while [ $# -gt 0 ]; do
    case $1 in
    --small) small=1 ;;
    --seconds)
        seconds=${2:-}
        shift
        ;;
    --stage)
        stage=${2:-}
        shift
        ;;
    --help)
        usage
        exit 0
        ;;
    -*)
        usage >&2
        exit 2
        ;;
    *) out=$1 ;;
    esac
    shift
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }

# ---- shapes ----

if [ -n "$small" ]; then
    layers=1 heads=1 width=16 context=8 vocabulary=260
    batch=2 timed=1 operations_batch=2 rounds=1
    digest_layers=1 digest_width=8 digest_context=8 digest_steps=6 kill_at=2
    step_samples=2 many_samples=4 step_steps=4
else
    layers=12 heads=12 width=768 context=1024 vocabulary=50257
    batch=32 timed=10 operations_batch=32 rounds=11
    digest_layers=2 digest_width=64 digest_context=32 digest_steps=200 kill_at=10
    step_samples=32 many_samples=512 step_steps=8
fi
gpt2="{kind: gpt, layers: $layers, heads: $heads, width: $width, context: $context, vocabulary: $vocabulary}"
logits_bytes=$((8192 * 50304 * 2)) # so many rows at once; a worker's numerics probe has arrays as large

programs=tests/gpu/bin
export CMOCKA_MESSAGE_OUTPUT=TAP
# Contexts of a device take turns: with 30 of them at once what waits for each of its kernels stood still.
at_once=4

# In memory where there is room: a rented machine's disk may be slow, and runs write checkpoints.
room_mib=$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1)
[ "${room_mib:-0}" -lt 16384 ] || export TMPDIR=/dev/shm
scratch=$(mktemp -d)
trap 'kill $(jobs -rp) 2>/dev/null; rm -rf "$scratch"' EXIT

# ---- what a stage says ----

row() { printf '= %-44s %s\n' "$1" "$2"; } # name figures
test_said() { echo "$1 - $2"; }            # ok|"not ok" name
skipped() {                                # what why
    echo "ok - $1 # SKIP $2"
    row "$1" "skipped: $2"
}
median() { sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
calculate() { awk "BEGIN { printf \"$1\", $2 }"; }
ms() { calculate %.2f "1000 * ${1:-0}"; } # seconds
ratio() { calculate %.3f "(${2:-0} > 0 ? ${1:-0} / ${2:-0} : 0)"; }

# ---- stages ----

# A folder with this library, where the linker may not look: CUDA's toolkit and Python's packages.
folder_with() { # library
    local file
    for file in /usr/local/cuda*/lib64/"$1" /usr/local/cuda*/targets/*/lib/"$1" \
        $(python3 -c 'import nvidia; print(*(path + "/*/lib/" for path in nvidia.__path__))' 2>/dev/null)"$1"; do
        [ ! -f "$file" ] || { dirname "$file"; return; }
    done
    return 1
}

# With the device's name in $device, or why there is none in $why.
find_device() {
    local folder
    if folder=$(folder_with libcublasLt.so.13); then
        export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
    device=$(timeout -k 5 60 "$programs/bench" device 2>&1) || { why=${device:-no device} device=''; }
    export device why
}

left() { echo $((seconds > SECONDS ? seconds - SECONDS : 0)); }

say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }

declare -A running=() # by process: its stage's name, seconds and file, and when it began

start_stage() { # name seconds file
    local name=$1 cap=$2
    [ "$cap" -le "$(left)" ] || cap=$(left)
    if [ "$cap" -eq 0 ]; then
        echo "not ok - $name: no time left" >"$out/$name.running"
        report_stage "$name" "$3" 'not run: no time left' 0
        return
    fi
    echo "# ---- $name" >"$out/$name.running"
    timeout -k 5 "$cap" "$self" ${small:+--small} --stage "$name" "$out" </dev/null >>"$out/$name.running" 2>&1 &
    running[$!]="$name $cap $3 $SECONDS"
}

# Reports each running stage when it ends.
wait_for_stages() {
    local process
    while [ ${#running[@]} -gt 0 ]; do
        for process in "${!running[@]}"; do
            if kill -0 "$process" 2>/dev/null; then
                leave_stage "$process"
            else
                end_stage "$process"
            fi
        done
        sleep 0.1
    done
}

# A process that the driver holds may outlive SIGKILL.
leave_stage() { # process
    local name cap file begun took
    read -r name cap file begun <<<"${running[$1]}"
    took=$((SECONDS - begun))
    [ "$took" -gt $((cap + 10)) ] || return 0
    unset "running[$1]"
    echo "not ok - $name: cannot be ended" >>"$out/$name.running"
    report_stage "$name" "$file" 'not ended' "$took"
}

end_stage() { # process
    local status=0 name cap file begun took
    wait "$1" || status=$?
    read -r name cap file begun <<<"${running[$1]}"
    unset "running[$1]"
    took=$((SECONDS - begun))
    [ "$status" -eq 0 ] || echo "not ok - $name: exit $status" >>"$out/$name.running"
    grep -qE '^((not )?ok|=) ' "$out/$name.running" || echo "not ok - $name: said nothing" >>"$out/$name.running"
    if [ "$status" -ge 124 ] && [ "$took" -ge "$cap" ]; then status="$status (ended after $cap s)"; fi
    report_stage "$name" "$file" "$status" "$took"
}

report_stage() { # name file status seconds
    local said=$out/$1.running
    say "$(printf '%-14s exit %s, %d failed, %d s' "$1" "$3" "$(grep -c '^not ok' "$said")" "$4")"
    sed -n 's/^= /  /p; s/^not ok/  &/p' "$said" | tee -a "$out/summary.txt"
    cat "$said" >>"$out/$2.txt" && rm "$said"
}

# Lines "name seconds file [beside]" on stdin. Those with the last word that follow one another run side by
# side; nothing else runs then. With --stage: that one, in this process.
run_stages() {
    local stages failed name cap file beside
    if [ -n "$stage" ]; then
        [ -n "${device+known}" ] || find_device
        declare -F "$stage" >/dev/null || exit 127
        $stage
        return 0
    fi
    stages=$(cat)
    mkdir -p "$out" || exit 1
    for file in summary $(awk '{ print $3 }' <<<"$stages"); do rm -f "$out/$file.txt"; done
    find_device
    while read -r name cap file beside; do
        [ -n "$beside" ] || wait_for_stages
        start_stage "$name" "$cap" "$file"
        [ -n "$beside" ] || wait_for_stages
    done <<<"$stages"
    wait_for_stages
    failed=$(awk '{ print $3 }' <<<"$stages" | sort -u | while read -r file; do cat "$out/$file.txt"; done | grep -c '^not ok')
    say "$([ "$failed" -eq 0 ] && echo 'all passed' || echo "$failed failed"), $SECONDS s; figures: $out"
    [ "$failed" -eq 0 ]
}

# For a stage that is of no use without one.
needs_device() { # name
    [ -n "$device" ] || { skipped "$1" "$why"; return 1; }
}

# ---- the machine ----

facts() {
    local folder
    cat tests/gpu/kernels
    echo "# $(date -u +%Y-%m-%dT%H:%MZ), $(bin/roost --version), $(uname -sr), $(nproc) cores, $(getconf GNU_LIBC_VERSION)"
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu \
        --format=csv 2>&1 || echo '# no nvidia-smi'
    for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib \
        $(python3 -c 'import nvidia; print(*(path + "/*/lib" for path in nvidia.__path__))' 2>/dev/null); do
        ls -l "$folder"/libcublasLt.so* "$folder"/libcupti.so* 2>/dev/null
    done
    echo "# LD_LIBRARY_PATH ${LD_LIBRARY_PATH:-}"
    ldd lib/libroost-cuda.so 2>&1
    for tool in nvcc ncu compute-sanitizer; do
        echo "# $tool: $(PATH=$PATH:/usr/local/cuda/bin $tool --version 2>&1 | tr '\n' ' ')"
    done
    row 'device' "${device:-none: $why}"
    row 'machine' "$(nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi')"
    row 'cuBLASLt' "$(ldd lib/libroost-cuda.so 2>/dev/null | awk '$1 ~ /cublasLt/ { print $3 == "not" ? "not found" : $3 }')"
    python3 -c 'import torch; print("# torch", torch.__version__, torch.version.cuda, torch.backends.cudnn.version())' 2>&1 | tail -n 1
}

# ---- tests on the device ----

# A program that prints TAP. What failed is run again alone: a device's error may outlive its test.
run_program() { # name command…
    local name=$1 said=$scratch/said.tap status test
    shift
    "$@" 2>&1 | tee "$said"
    status=${PIPESTATUS[0]}
    echo "# $name: exit $status"
    if [ "$status" -ne 0 ] || ! grep -q '^ok ' "$said"; then
        test_said 'not ok' "$name: exit $status"
        row "$name" "$(grep -c '^ok ' "$said") passed, FAILED: exit $status, $(grep '^not ok ' "$said" | sed 's/^not ok [0-9]* *-* *//' | tr '\n' ' ')"
    else
        row "$name" "$(grep -c '^ok ' "$said") passed"
    fi
    [[ $1 == "$programs"/* ]] || return 0
    for test in $(sed -nE 's/^not ok [0-9]+ - ([a-z0-9_]+)$/\1/p' "$said" | head -n 6); do
        echo "# $test again, alone"
        if timeout --foreground -k 5 20 "$1" only "$test" 2>&1 | tee "$scratch/again.tap" | grep -q '^ok '; then
            row "  $test" 'passes alone'
        fi
        cat "$scratch/again.tap"
    done
}

# Each of these tests of a program in a process of its own, a few at once: what ends one of them takes
# nothing from the others.
run_each() { # name program [only|without pattern…]
    local name=$1 program=$2 test verdict
    shift 2
    for verdict in passed failed skipped unchecked; do : >"$scratch/$verdict"; done
    "$program" list "$@" >"$scratch/tests"
    [ -s "$scratch/tests" ] || test_said 'not ok' "$name: no tests"
    trap 'row_of_tests "$name"; wait; say_unfinished; exit 143' TERM # what timeout sends to all processes of a stage
    while read -r test; do
        while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
        run_alone "$name" "$program" "$test" &
    done <"$scratch/tests"
    wait
    trap - TERM
    row_of_tests "$name"
    echo "# $name: exit $([ -s "$scratch/passed" ] && [ ! -s "$scratch/failed" ] && echo 0 || echo 1)" # all skipped shows nothing
}

under=() # what runs a test's program: nothing, or a sanitizer and its flags
found='^=========.*(Race reported|Invalid |Uninitialized |Barrier error|Divergent )'

# A sanitizer that fails itself says nothing of the test, unless it has found something before.
run_alone() { # name program test
    local said=$scratch/$3.said status verdict=failed
    trap 'exit 143' TERM
    "${under[@]}" "$2" only "$3" </dev/null >"$said" 2>&1
    status=$?
    if grep -q 'Internal Sanitizer Error' "$said" && ! grep -qE "$found" "$said"; then
        verdict=unchecked
        sed -i 's/^/# /' "$said"
        test_said ok "$1: $3 # SKIP could not be checked: Internal Sanitizer Error" >>"$said"
    elif [ "$status" -eq 0 ] && grep -q "^ok [0-9]* - $3 *\(# SKIP.*\)\?$" "$said"; then
        grep -q "^ok [0-9]* - $3 *# SKIP" "$said" && verdict=skipped || verdict=passed
    elif ! grep -q '^not ok' "$said"; then
        test_said 'not ok' "$1: $3: exit $status" >>"$said"
    fi
    echo "$3" >>"$scratch/$verdict"
    cat "$said"
}

row_of_tests() { # name
    local said verdict words
    said="$(wc -l <"$scratch/passed") passed"
    sort "$scratch"/{passed,failed,skipped,unchecked} | comm -13 - <(sort "$scratch/tests") >"$scratch/unfinished"
    while read -r verdict words; do
        [ ! -s "$scratch/$verdict" ] || said+=", $words: $(paste -sd ' ' "$scratch/$verdict")"
    done <<'WORDS'
failed FAILED
skipped skipped
unchecked could not be checked (Internal Sanitizer Error)
unfinished NOT FINISHED
WORDS
    row "$1" "$said"
}

say_unfinished() {
    local test
    while read -r test; do
        tail -n 20 "$scratch/$test.said" 2>/dev/null | sed "s/^/# unfinished, $test: /"
    done <"$scratch/unfinished"
}

parity() {
    needs_device parity || return 0
    if [ -n "$small" ]; then
        run_program parity "$programs/parity" only 'what_follows*' 'a_copy*'
    else
        run_program parity "$programs/parity" without 'algorithms_that_are_of_no_use*'
        run_program 'parity, a stranger'"'"'s algorithms' "$programs/parity" only 'algorithms_that_are_of_no_use*' # what cuBLASLt does with them nobody knows
    fi
}

train() {
    needs_device train || return 0
    if [ -n "$small" ]; then
        run_each train "$programs/train" only 'a_run_that*'
    else
        run_each train "$programs/train" without 'so_it_has_for_as_long*'
    fi
}

losses() {
    needs_device losses || return 0
    if [ -n "$small" ]; then
        run_program 'losses of 300 steps' "$programs/train" only 'the_device_has*'
    else
        run_program 'losses of 300 steps' "$programs/train" only 'so_it_has_for_as_long*'
    fi
}

# ---- GPT-2 124M ----

# Seconds of a step of ours on the device alone, the median; $scratch/compute.err says what it took,
# $scratch/compute all that it printed. WAY: bench_compute's, or "-".
compute_s() { # way samples microbatch [setting…]
    local way=${1#-} samples=$2 microbatch=$3
    shift 3
    # shellcheck disable=SC2086 # no word for none
    "$programs/bench_compute" cuda $way $timed model.layers=$layers model.heads=$heads model.width=$width \
        model.context=$context model.vocabulary=$vocabulary train.slot_samples="$samples" train.microbatch="$microbatch" \
        train.compute=bf16 train.logits_bytes_max=$logits_bytes "$@" >"$scratch/compute" 2>"$scratch/compute.err"
    cat "$scratch/compute.err" >&2
    grep -E '^[0-9.]+$' "$scratch/compute" | median
}

mfu_rule="(6 x weights + 12 x layers x width x context) FLOPs a token (PaLM, appendix B), of 989 TFLOP/s (H200, bf16, dense)"
mfu() { # tokens a second
    local weights=$((vocabulary * width + context * width + layers * (12 * width * width + 13 * width) + 2 * width))
    calculate %.1f "100 * $1 * (6 * $weights + 12 * $layers * $width * $context) / 989e12"
}

figures() { # samples seconds MiB "MiB of the device": as a row has them
    local rate
    rate=$(calculate %.0f "$1 * $context / $2")
    echo "$rate tokens/s at batch $1, $(ms "$2") ms, $(mfu "$rate") % MFU, peak ${3:-?} MiB, the device's ${4:-?}"
}

taken() { sed -nE "s/^$1 ([0-9]+) MiB/\\1/p" "$scratch/compute.err"; } # peak|device

ours() { # name way samples [setting…]: a row, and the seconds in $took
    local name=$1 way=$2 samples=$3
    shift 3
    took=$(compute_s "$way" "$samples" "$samples" "$@")
    if [ -z "$took" ]; then
        row "$name" "FAILED at batch $samples: $(tail -n 1 "$scratch/compute.err")"
        return 1
    fi
    row "$name" "$(figures "$samples" "$took" "$(taken peak)" "$(taken device)")"
    echo "# took, $name: $took"
}

model() {
    local result=ok
    needs_device 'GPT-2 124M' || return 0
    ours 'forward and backward, roost' - "$batch" || result='not ok'
    ours 'and AdamW on the device, roost' update "$batch" || result='not ok'
    test_said "$result" 'GPT-2 124M runs on the device'
    row MFU "$mfu_rule"
}

# What else cuBLASLt has for each shape: name, then a line a candidate.
candidates() {
    needs_device "cuBLASLt's candidates" || return 0
    if ! ours 'forward and backward, fastest algorithms' fastest "$batch"; then
        test_said 'not ok' "cuBLASLt's candidates are timed"
        return
    fi
    test_said ok "cuBLASLt's candidates are timed"
    echo '# shape/alignment algorithm (number, tile, stages, inner, cluster, custom, splits, scheme) us TFLOP/s'
    sed -n 's/^candidate //p' "$scratch/compute"
    sed -n 's/^candidate //p' "$scratch/compute" | awk '
        / first/ { first += $4; shapes++ }
        / taken/ { taken += $4 }
        END { printf "%d shapes once each: %.0f us by the heuristic, %.0f us by the fastest", shapes, first, taken }' >"$scratch/sums"
    row 'products' "$(cat "$scratch/sums")"
}

batches() {
    needs_device batches || return 0
    for samples in $((batch / 2)) $((batch * 2)) $((batch * 4)); do
        ours 'forward and backward, roost' - "$samples" || return 0
        ours 'and AdamW on the device, roost' update "$samples" || return 0
    done
}

others() {
    needs_device 'other settings' || return 0
    ours 'batch 1' - 1
    ours 'batch 1, without graphs' direct 1
    ours '64 MiB of logits' - "$batch" train.logits_bytes_max=67108864
    ours 'a quarter of the batch at once, 64 MiB of logits' - "$batch" train.logits_bytes_max=67108864 "train.microbatch=$((batch / 4 > 0 ? batch / 4 : 1))"
    ours 'tf32' - "$((batch / 2))" train.compute=tf32
    ours 'fp32' - "$((batch / 2))" train.compute=fp32
}

# ---- PyTorch ----

# Its own libraries, not those that ours were given.
python() { env -u LD_LIBRARY_PATH PYTHONUNBUFFERED=1 python3 tests/gpu/pytorch.py "$@"; }
has_torch() { env -u LD_LIBRARY_PATH python3 -c "import torch; assert torch.cuda.is_available() or '$small'"; }
no_torch='python3 has no torch that sees the device'
our_s() { sed -n "s/^# took, $1: //p" "$out/model.txt" 2>/dev/null | head -n 1; } # name

# Lines "batch compute_s step_s MiB MiB MiB MiB": ratios to ours at the same batch.
pytorch_rows() { # name
    local samples compute step compute_mib step_mib compute_device step_device
    while read -r samples compute step compute_mib step_mib compute_device step_device; do
        row "forward and backward, $1" "$(figures "$samples" "$compute" "$compute_mib" "$compute_device")"
        row "and fused AdamW, $1" "$(figures "$samples" "$step" "$step_mib" "$step_device")"
        row "roost to $1" "$(ratio "$compute" "$(our_s 'forward and backward, roost')") of compute, $(ratio "$step" "$(our_s 'and AdamW on the device, roost')") of a step (1.15 wanted)"
    done
}

python_model() { python model "$1" "$context" "$layers" "$heads" "$width" "$vocabulary" "$batch"; } # flash|cudnn

compile_model() { # flash|cudnn
    local begun=$SECONDS said=compiled
    python_model "$1" >"$scratch/compiled.$1"
    [ -s "$scratch/compiled.$1" ] || said=FAILED
    row "PyTorch's model, $1" "$said, $((SECONDS - begun)) s"
}

# So that pytorch has the time to measure: torch keeps what it compiled. Figures are dropped, other things run
# beside this.
compiling() {
    local way
    has_torch || { skipped "compiling PyTorch's model" "$no_torch"; return 0; }
    for way in flash cudnn; do compile_model $way & done
    wait
}

pytorch_model() { # flash|cudnn
    python_model "$1" | tee "$scratch/torch"
    [ -s "$scratch/torch" ] || row "PyTorch, $1" FAILED
    pytorch_rows "PyTorch, $1" <"$scratch/torch"
}

pytorch_attention() { # flash|cudnn
    python attention "$1" "$batch" "$context" "$heads" $((width / heads)) |
        while IFS= read -r line; do row "PyTorch, $1" "$line"; done
}

pytorch() {
    has_torch || { skipped "PyTorch's model" "$no_torch"; return 0; }
    pytorch_model flash
    pytorch_attention flash
    pytorch_attention cudnn
    pytorch_model cudnn # last: where it is compiled anew, it may take too long
}

# ---- traces ----

# With every kernel and copy of CUDA programs in $scratch/trace.PID, where CUPTI is there.
traced() { # command…
    local library=$PWD/$programs/libroost-trace.so
    rm -f "$scratch"/trace.*
    if [ -f "$library" ]; then
        CUDA_INJECTION64_PATH=$library GPU_TRACE=$scratch/trace "$@"
    else
        "$@"
    fi
}

report_trace() { # name milliseconds of a picture
    local file name=$1 kind share
    for file in "$scratch"/trace.*; do
        [ -s "$file" ] || { skipped "trace, $name" 'CUPTI wrote none'; return; }
        tests/gpu/trace_report "$file" "$2" >"$scratch/report"
        cat "$scratch/report"
        sed -nE '2,13s/^ +([0-9.]+) +([0-9.]+) +([0-9]+) +([0-9.]+)  (.*)/= \2 % \4 us each: \5/p' "$scratch/report"
        while read -r kind share; do
            row "trace, $name: copies $kind" "$share"
        done < <(sed -nE 's/^(in|out) .* ms, *([0-9.]+ %.*)/\1 \2/p' "$scratch/report")
    done
}

trace() {
    needs_device trace || return 0
    traced compute_s update "$batch" "$batch" >"$scratch/traced.s"
    echo "# kernels by time: $((timed + 2)) steps of batch $batch with the update (tests/gpu/trace_report)"
    report_trace 'the model alone' 0
}

# ---- operations ----

limit() { sed -n "s/^limit $1 //p" "$scratch/torch" 2>/dev/null | grep . || echo 0; } # name: what PyTorch reached

measure_operations() { # compute…
    local shape="$operations_batch $context $width $heads $vocabulary" measured=ok below compute
    for compute in "$@"; do
        # shellcheck disable=SC2086 # numbers
        "$programs/bench" "$compute" $shape $rounds "$(limit copy)" "$(limit "$compute")" >"$scratch/bench" 2>&1 || measured='not ok'
        awk -F ': ' -v torch="$scratch/torch" '
            BEGIN { while ((getline line < torch) > 0) { split(line, part, ": "); theirs[part[1]] = part[2] } }
            / us .* GB\/s/ {
                name = substr($0, 1, 32); sub(/ +$/, "", name)
                printf "%s%s\n", $0, name in theirs ? "; PyTorch (bf16) " theirs[name] " us" : ""
                next
            }
            { print }' "$scratch/bench"
        below=$(awk '/ us .* GB\/s/ && match($0, /[0-9]+ % of (stream|product)/) && substr($0, RSTART) + 0 < 50 {
            name = substr($0, 1, 32); sub(/ +$/, "", name); printf "%s%s", n++ ? ", " : "", name }' "$scratch/bench")
        row "limits, $compute" "$(sed -n 's/^limits: //p' "$scratch/bench")"
        row "operations in $compute, below half of the limit" "${below:-none}"
        if [ "$compute" = bf16 ]; then
            grep -E '^(attention|head|classifier|layernorm|embedding|linear) .* us ' "$scratch/bench" | sed 's/^/= /'
        fi
    done
    test_said "$measured" 'every operation is measured'
}

operations() {
    needs_device operations || return 0
    has_torch && python limits >"$scratch/torch"
    measure_operations bf16
}

all_operations() {
    needs_device operations || return 0
    # shellcheck disable=SC2086 # numbers
    has_torch && timeout -k 5 100 env -u LD_LIBRARY_PATH PYTHONUNBUFFERED=1 python3 tests/gpu/pytorch.py operations $operations_batch $context $width $heads $vocabulary >"$scratch/torch"
    measure_operations bf16 fp32 tf32
}

# ---- NVIDIA's tools, for our own kernels alone ----

tool() { PATH=$PATH:/usr/local/cuda/bin command -v "$1"; } # name

profile() {
    local ncu names
    needs_device profile || return 0
    ncu=$(tool ncu) || { skipped profile 'no ncu'; return 0; }
    names=$(tr '\n' '|' <tests/gpu/own_kernels)
    layers=1 timed=1 # all kernels, at the same shapes
    # shellcheck disable=SC2086 # numbers
    "$ncu" --clock-control none --filter-mode per-launch-config --launch-count 1 --kernel-name "regex:^(${names%|})\$" \
        --section SpeedOfLight --section Occupancy --section LaunchStats --section WarpStateStats --section SchedulerStats \
        --section MemoryWorkloadAnalysis --section ComputeWorkloadAnalysis --section SourceCounters \
        "$programs/bench_compute" cuda update 1 model.layers=$layers model.heads=$heads model.width=$width \
        model.context=$context model.vocabulary=$vocabulary train.slot_samples=$batch train.microbatch=$batch \
        train.compute=bf16 train.logits_bytes_max=$logits_bytes | tee "$scratch/profile"
    test_said "$([ "${PIPESTATUS[0]}" -eq 0 ] && echo ok || echo 'not ok')" 'our kernels are profiled'
    awk '
        function flush() { if (name) printf "= %-44s %s %s, SM %s %%, memory %s %%, occupancy %s %%, %s registers\n", name, took, unit, sm, bytes, warps, registers }
        /Context [0-9]+, Stream/ { flush(); name = $0; sub(/^ */, "", name); sub(/^void /, "", name); gsub(/\([a-z]+\)/, "", name); sub(/\(.*/, "", name); took = unit = sm = bytes = warps = registers = "?" }
        /^ *Duration / { took = $NF; unit = $(NF - 1) }
        /^ *Compute \(SM\) Throughput / { sm = $NF }
        /^ *Memory Throughput +%/ { bytes = $NF }
        /^ *Achieved Occupancy / { warps = $NF }
        /^ *Registers Per Thread / { registers = $NF }
        END { flush() }' "$scratch/profile"
}

# Parity at small shapes, without the test that ends a launch by a trap, which is an error to it, and
# without the one of which nobody knows what cuBLASLt does.
sanitize() { # tool [without pattern…]
    local sanitizer name under tests=(without 'a_token_that_does_not_exist*' 'algorithms_that_are_of_no_use*' 'at_real_shapes*' "${@:2}")
    needs_device "$1" || return 0
    sanitizer=$(tool compute-sanitizer) || { skipped "$1" 'no compute-sanitizer'; return 0; }
    under=("$sanitizer" --tool "$1")
    while read -r name; do
        under+=(--kernel-name "kns=${#name}$name") # as it stands in a mangled name
    done <tests/gpu/own_kernels
    under+=(--error-exitcode 9 --report-api-errors no)
    [ -z "$small" ] || tests=(only 'what_follows*')
    run_each "$1" "$programs/parity" "${tests[@]}"
}
memcheck() { sanitize memcheck; }
racecheck() { sanitize racecheck; }
synccheck() { sanitize synccheck; }
initcheck() { sanitize initcheck 'with_tf32*'; } # which reads what cuBLASLt's kernels alone have written

# ---- training from the bundle ----

fact() { # summary name
    sed -nE "s/.*\"$2\": *\"?([^\",}]*).*/\1/p" "$1" | tail -n 1
}

child_of() { # pid name: one such child of it
    local folder
    for folder in /proc/[0-9]*; do
        if [ "$(cat "$folder/comm" 2>/dev/null)" = "$2" ] && grep -qsx "PPid:[[:space:]]$1" "$folder/status"; then
            echo "${folder#/proc/}"
            return
        fi
    done
}

# A worker is killed when some steps are done, long before the last.
kill_a_worker() { # directory pid
    local worker
    while kill -0 "$2" 2>/dev/null; do
        if [ -f "$1/steps.jsonl" ] && [ "$(wc -l <"$1/steps.jsonl")" -ge $kill_at ]; then
            worker=$(child_of "$2" roost-worker)
            [ -z "$worker" ] || { kill -9 "$worker"; return; }
        fi
        sleep 0.05
    done
}

roost_up() { # name backend workers spec flag…: the summary in $scratch/NAME.json
    local name=$1 backend=$2 workers=$3 spec=$4 pid directory=$scratch/$1
    shift 4
    bin/roost up "$spec" --dir "$directory" --backend "$backend" --servers 1 --workers "$workers" --json "$@" \
        >"$scratch/$name.json" 2>"$scratch/$name.err" &
    pid=$!
    trap 'say_how_far "$name"; exit 143' TERM # what timeout sends to all processes of a stage
    [[ $name != *killed* ]] || kill_a_worker "$directory" "$pid"
    wait "$pid" && { trap - TERM; return; }
    trap - TERM
    say_how_far "$name"
    return 1
}

say_how_far() { # name
    local file
    for file in "$scratch/$1.err" "$scratch/$1"/logs/*; do
        tail -n 8 "$file" | sed "s|^|# ${file##*/}: |"
    done
}

# ---- one digest ----

one_digest() { # backend steps layers width context
    local backend=$1 name workers devices digest first='' result=ok
    cat >"$scratch/spec.yaml" <<SPEC
model:      {kind: gpt, layers: $3, heads: 2, width: $4, context: $5, vocabulary: 256}
data:       {kind: text, path: $PWD/LICENSE, validation: 0.1}
train:      {steps: $2, slots: 8, slot_samples: 1, seed: 3, validation_samples: 8}
optimizer:  {kind: adamw, lr: 1.0e-3, clip_norm: 1.0}
checkpoint: {every_steps: 0}
SPEC
    for name in one two two_one_killed two_devices; do
        workers=2 devices=1
        case $name in
        one) workers=1 ;;
        two_devices) workers=1 devices=2 ;;
        esac
        roost_up "$backend-$name" "$backend" $workers "$scratch/spec.yaml" --devices $devices || result='not ok'
        digest=$(fact "$scratch/$backend-$name.json" digest)
        echo "# $backend, $name: digest ${digest:-none}, workers lost $(fact "$scratch/$backend-$name.json" workers_lost)," \
            "$(fact "$scratch/$backend-$name.json" samples_per_second) samples/s"
        first=${first:-$digest}
        [ -n "$digest" ] && [ "$digest" = "$first" ] || result='not ok'
        [ $name != two_one_killed ] || [ "$(fact "$scratch/$backend-$name.json" workers_lost)" -ge 1 ] || result='not ok'
    done
    test_said "$result" "$backend: one digest for 1 worker, for 2, for 2 of which one is killed, and for 1 of two devices"
    row "digests, $backend" "$([ "$result" = ok ] && echo 'one for 1, 2, 2 with one killed, and 1 of two devices' || echo FAILED)"
}

kept_products() { sed -nE 's/^ *products: "(.*)"$/\1/p' "$scratch/$1/run.yaml"; } # name

# One worker times the algorithms; another run of two is given what the first one kept.
timed_digest() {
    local name=cuda-timed result=ok kept digest
    roost_up $name cuda 1 "$scratch/spec.yaml" --set train.products=timed || result='not ok'
    kept=$(kept_products $name)
    digest=$(fact "$scratch/$name.json" digest)
    echo "# timed: digest ${digest:-none}, kept $kept"
    roost_up $name-two cuda 2 "$scratch/spec.yaml" --set "train.products=$kept" || result='not ok'
    [ -n "$kept" ] && [ -n "$digest" ] && [ "$(fact "$scratch/$name-two.json" digest)" = "$digest" ] || result='not ok'
    test_said "$result" 'cuda: one digest for a worker that times products, and for 2 that are given them'
    row 'digest, timed' "$([ "$result" = ok ] && echo 'one for the worker that times, and for 2 that are given' || echo FAILED)$(
        [ "$digest" != "$(fact "$scratch/cuda-one.json" digest)" ] || echo "; the heuristic's algorithms have the same")"
}

digests() {
    if [ -n "$device" ]; then
        one_digest cuda $digest_steps $digest_layers $digest_width $digest_context
        timed_digest
    else
        skipped 'digests, cuda' "$why"
        one_digest cpu 300 2 64 32 # so much can be seen
    fi
}

# ---- the whole step, through a server ----

step_spec() { # samples microbatch
    cat >"$scratch/step.yaml" <<SPEC
model: $gpt2
data: {kind: text, path: $PWD/LICENSE, validation: 0}
train: {steps: $step_steps, slots: 1, slot_samples: $1, microbatch: $2, compute: bf16, precision: bf16,
        validate_every: 0, logits_bytes_max: $logits_bytes}
optimizer: {kind: adamw, clip_norm: 1.0, schedule: constant}
checkpoint: {every_steps: 0}
SPEC
}

# Beside compute alone, in the same call, with the same algorithms. WAY: bench_compute's, or "-".
step_of() { # name samples way flag…
    local name=$1 samples=$2 way=$3 step_ms alone result=ok
    shift 3
    step_spec "$samples" $step_samples
    if ! roost_up "$name" cuda 1 "$scratch/step.yaml" "$@"; then
        test_said 'not ok' "a step through a server: $name"
        return
    fi
    step_ms=$(sed -nE 's/.*"duration_ms": *([0-9]+).*/\1/p' "$scratch/$name/steps.jsonl" | tail -n +4 | median)
    alone=$(compute_s "$way" "$samples" $step_samples)
    [ -n "$step_ms" ] && [ -n "$alone" ] || result='not ok'
    if [ "$way" = fastest ]; then
        grep -h 'products timed' "$scratch/$name"/logs/* | sed 's/^/# /' || result='not ok'
        [ -n "$(kept_products "$name")" ] || result='not ok'
    fi
    echo "# $name: pushed $(fact "$scratch/$name.json" pushed_bytes), pulled $(fact "$scratch/$name.json" pulled_bytes) bytes in $step_steps steps"
    test_said "$result" "a step through a server: $name"
    row "step, $name" "$step_ms ms for $samples samples; forward and backward alone $(ms "$alone") ms"
}

step() {
    needs_device step || return 0
    step_of plaintext $step_samples - --insecure
    step_of TLS $step_samples -
    step_of TLS-many-samples $many_samples -
    step_of TLS-many-timed $many_samples fastest --set train.products=timed
}

step_traced() {
    needs_device 'trace of a step' || return 0
    step_spec $step_samples $step_samples
    if traced roost_up traced cuda 1 "$scratch/step.yaml" --insecure; then
        echo "# what a step through a server gives the device (tests/gpu/trace_report)"
        report_trace 'a step through a server' 500
    else
        test_said 'not ok' 'a step through a server: traced'
    fi
}
