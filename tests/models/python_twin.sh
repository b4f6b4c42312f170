#!/usr/bin/env bash
# python_twin.sh PROGRAM: checks that weights saved by `lockstep train --save` give Python's network the same loss and
# counts as `lockstep eval`, on a small set of images. Skipped without a Python with torch.
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/lib.sh"

need_python_torch
set -e
program=$1 folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
twin=("$python" "$root/tests/models/python_twin.py")
"$python" "$root/tests/models/small_data.py" "$folder"
# compare RECIPE FLAG...: trains long enough for the loss to depend clearly on the weights
compare() {
  local weights=$folder/$1.safetensors
  "$program" train --recipe "$1" --data "$folder" --batch-size 32 --save "$weights" --quiet "${@:2}"
  "$program" eval --weights "$weights" --data "$folder" --devices cpux2 | tee "$folder/eval.txt"
  "${twin[@]}" --check "$weights" --data "$folder" --eval "$folder/eval.txt"
}
compare lenet-scratch --optimizer adamw --lr .003 --epochs 10
compare resnet18-warmup --lr .02 --epochs 2
