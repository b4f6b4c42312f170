#!/usr/bin/env bash
# scripts/accuracy_table.sh [FLAG...]: prints the test accuracy of `lockstep train` for seeds 0-4 on one and on two replicas
# as a Markdown table. Sets up and builds first where needed. About 20 minutes on two cores.
#
#   scripts/accuracy_table.sh                                     10 epochs each
#   scripts/accuracy_table.sh --epochs 1 --limit-train 6400       FLAG... goes to `lockstep train`
#   SEEDS="0 1" DEVICES="cpu cpux3" scripts/accuracy_table.sh     other rows and columns
#
# After an interruption it continues: build/accuracy keeps the last line of each finished run, for each build of the
# program.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

help_first "$@"
read -ra seeds <<<"${SEEDS:-0 1 2 3 4}"
read -ra devices <<<"${DEVICES:-cpu cpux2}"
[ $# -gt 0 ] || set -- --epochs 10

"$root/scripts/setup.sh" --quiet
build release lockstep_cli
program=$root/build/release/lockstep
results=$root/build/accuracy/$(sha256sum "$program" | head -c 12)
mkdir -p "$results"

# accuracy DEVICES SEED FLAG...: prints the accuracy of a run, from its last line `test acc: 0.83, ...`. Runs it unless an
# earlier result is kept.
accuracy() {
  local flags="--devices $1 --seed $2 ${*:3}" kept line
  kept=$results/${flags//[^a-zA-Z0-9.,:-]/_}
  if [ ! -e "$kept" ]; then
    # shellcheck disable=SC2086  # several flags
    "$program" train $flags --quiet >"$kept.running" || return
    mv "$kept.running" "$kept"
  fi
  line=$(tail -n 1 "$kept")
  say "train $flags: $line"
  line=${line#test acc: }
  echo "${line%%,*}"
}

# Prints rows with the mean and the minimum of each column of the rows on stdin.
summaries() {
  awk -F '|' '
    { for (i = 3; i < NF; ++i) { sum[i] += $i; if (NR == 1 || $i < low[i]) low[i] = $i } columns = NF }
    END {
      printf "| mean |"; for (i = 3; i < columns; ++i) printf " %.3f |", sum[i] / NR
      printf "\n| lowest |"; for (i = 3; i < columns; ++i) printf " %.2f |", low[i]
      printf "\n"
    }'
}

rows=()
for seed in "${seeds[@]}"; do
  row="| $seed |"
  for list in "${devices[@]}"; do
    value=$(accuracy "$list" "$seed" "$@")
    row+=" $value |"
  done
  rows+=("$row")
done

# shellcheck disable=SC2016  # backquotes of Markdown
{
  printf '`lockstep train %s`, test accuracy\n\n| seed |' "$*"
  printf ' `--devices %s` |' "${devices[@]}"
  printf '\n|---|'
  printf -- '---|%.0s' "${devices[@]}"
  printf '\n'
}
printf '%s\n' "${rows[@]}"
printf '%s\n' "${rows[@]}" | summaries
