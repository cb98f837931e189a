#!/usr/bin/env bash
# What unitk does on one GPU: three calls of at most ten minutes each.
#
#     bash recipes/benchmarks/gpu.sh train     the bars of training
#     bash recipes/benchmarks/gpu.sh levers    what each option of training changes, and a profile
#     bash recipes/benchmarks/gpu.sh decode    recorded decoding
#
# Each row is written to $OUT (runs/gpu) as soon as it is there, so that a call that is cut off
# leaves the rows before. Models have random weights, and the data is the bundled sample.
set -uo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH=$PWD
OUT=${OUT:-runs/gpu}
DATA=$OUT/corpus
TABLE=$OUT/${1:-}.txt
FEW=(--device cuda --precision bf16 --build '' --warm 6 --updates 10 --rounds 2)
NO_DROPOUT="--arch.dropout 0 --arch.attention-dropout 0"

note() { echo "$@" | tee -a "$TABLE"; }

# One row: a limit in seconds, and a command whose last lines are its table.
row() {
    local limit=$1
    shift
    note "\$ $*"
    timeout "$limit" "$@" >"$OUT/row.log" 2>&1
    local code=$?
    grep -v -e '^vocabulary' -e '^train:' "$OUT/row.log" | tail -"${LINES_OF_ROW:-6}" | tee -a "$TABLE"
    [ $code = 0 ] || note "ended with $code"
}

machine() {
    mkdir -p "$OUT"
    note "# $(date -u +%F), $(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader)"
    note "# $(nproc) CPU cores; $(python -c 'import platform, torch; print(f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}")')"
    [ -d "$DATA/train" ] || python -m unitk preprocess --dest "$DATA" --vocab-size 8000 \
        --input recipes/quickstart/data/openstax-ccby/openstax.train.jsonl.gz --sentences punct \
        >"$OUT/preprocess.log" 2>&1
}

# Arguments: task, architecture, block size, slots of an update, flags of unitk train.
measure() {
    row 110 python recipes/benchmarks/train.py --data "$DATA" "${FEW[@]}" \
        --task "$1" --arch "$2" --block-size "$3" --max-tokens "$4" --flags "$5"
}

train() {
    local fast="--compile --residual half"
    measure mlm bert_base 512 65536 "$NO_DROPOUT"
    measure mlm bert_base 512 65536 "$NO_DROPOUT $fast"
    measure mlm bert_base 512 65536 "--arch.dropout 0.1 --arch.attention-dropout 0.1 $fast"
    measure lm gpt2_small 1024 65536 "$NO_DROPOUT $fast"
    measure mlm bert_large 512 32768 "$NO_DROPOUT $fast"
    measure lm modern_mini 512 4096 "--optimizer muon"
    measure lm modern_mini 512 4096 "--optimizer muon --static --capture"
    measure lm modern_mini 512 4096 "--optimizer muon --static --capture --compile"
}

levers() {
    measure mlm bert_base 512 65536 "$NO_DROPOUT --attention dense"
    measure mlm bert_base 512 65536 "$NO_DROPOUT --compile --attention dense"
    measure mlm bert_base 512 65536 "$NO_DROPOUT --compile"
    measure mlm bert_base 512 65536 "$NO_DROPOUT --compile --residual half"
    measure mlm bert_base 512 65536 "$NO_DROPOUT --compile --residual half --static"
    rm -rf "$OUT/profiled"
    LINES_OF_ROW=40 row 60 python -m unitk train --data "$DATA" --task mlm --arch bert_base \
        --arch.dropout 0 --arch.attention-dropout 0 --block-size 512 --max-tokens 65536 \
        --precision bf16 --compile --residual half --max-steps 9 --valid none --profile \
        --save-dir "$OUT/profiled"
}

decode() {
    local batches=(python recipes/benchmarks/batches.py)
    row 120 "${batches[@]}" --case encdec-128 --batch 32 --batches 48 --beam 5 --peer
    row 60 "${batches[@]}" --case cnn-128 --batch 32 --batches 16 --beam 1
    row 60 "${batches[@]}" --case cnn-128 --batch 128 --batches 16 --beam 1
    row 60 "${batches[@]}" --case lm-256 --batch 32 --batches 24 --beam 5
    row 60 "${batches[@]}" --case glm-256 --batch 32 --batches 24 --beam 5
    row 60 python recipes/benchmarks/decode.py --device cuda --cases encdec-128 --batch 32 \
        --precision bf16 --rounds 4
}

case ${1:-} in
train | levers | decode) machine && "$1" ;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
