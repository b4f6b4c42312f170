#!/usr/bin/env bash
# python_goes_on.sh PROGRAM TEST-PROGRAM: Python's safetensors package reads a checkpoint. Python's network then has the
# same logits, and LeNet goes on from the optimizer's state to the same weights. Skipped without a Python with torch and
# the package.
source "$(dirname "$0")/../../../data/need_safetensors.sh"

need_safetensors torch
set -e
program=$1 tests=$2
"$python" "$root/tests/models/small_data.py" "$folder"

# train MODEL SEED FLAG...: 4 steps, and their checkpoint's logits of the images for tests.
train() {
  local run=$folder/$1-$2
  "$program" train --data "$folder" --momentum .9 --keep 9 --quiet --output "$run" --seed "$2" --limit-steps 4 "${@:3}"
  LOCKSTEP_TEST_CHECKPOINT=$run/checkpoints/step-00000004 LOCKSTEP_TEST_IMAGES=$folder/images.safetensors \
    LOCKSTEP_TEST_LOGITS=$run/logits.safetensors "$tests" 'logits for Python' >/dev/null
}

lenet=(--recipe lenet-scratch --devices cpux2 --batch-size 16 --epochs 6 --lr .05)
for seed in 0 1 2; do
  train lenet $seed "${lenet[@]}"
  "$program" train --resume "$folder/lenet-$seed" --data "$folder" --momentum .9 --keep 9 --quiet --seed $seed \
    "${lenet[@]}"
done
# It does not go on: within 20 steps Python's own float and double are too far from each other to compare with, by ReLUs
# that take the other side or, at a smaller rate, by the rounding of the weights.
train resnet18 0 --recipe resnet18-warmup --devices cpu --batch-size 8
"$python" "$root/tests/app/train/checkpoint/python_goes_on.py" --folder "$folder" --batch-size 16 --lr .05 --seeds 3
