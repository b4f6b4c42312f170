# Sourced by gpu_check.sh: runs the steps of a part within its time, and writes the report. A part is a function
# part_NAME of gpu_check_parts.sh. It calls check, beside, join and note; once it sets `ended` to a reason, no further
# step runs.
# shellcheck shell=bash disable=SC2154  # gpu_check.sh sets paths and flags

# limited SECONDS COMMAND...: runs a command; 124 when it was cut off. All its processes have ended then.
limited() {
  local code=0
  timeout --kill-after=10 "$@" &
  job=$!
  wait "$job" || code=$?
  # timeout made its own process group. Processes that ignored its signal are still there.
  kill -KILL -- "-$job" 2>/dev/null || true
  job=
  return "$code"
}

# seconds_for N: the limit of a step with N of the part's `whole` seconds; at most the time that is left.
seconds_for() {
  local limit=$((($1 * share + whole - 1) / whole)) left=$((deadline - SECONDS))
  echo $((limit < left ? limit : left))
}

# may_run: whether a step may begin; else why not, in `why`.
may_run() {
  why=${ended:-the time was used up}
  [ -z "$ended" ] && [ "$(seconds_for 1)" -gt 0 ]
}

log_of() { echo "$work/${1//[^a-zA-Z0-9]/-}.log"; }

# code_of NAME: prints the exit code of a step that has ended by itself, in this call or an earlier one; else nothing.
code_of() { awk -F '\t' -v name="$1" '$1 == "step" && $2 == name { print $3 }' "$work/record" | tail -n 1; }

# check NAME SECONDS COMMAND...: runs one step of the part, also after failed ones; 0 when it passed. A step that ended
# in an earlier call is not run again, and has the same outcome.
check() {
  local name=$1 limit code why
  code=$(code_of "$name")
  [ -z "$code" ] || return "$code"
  limit=$(seconds_for "$2")
  shift 2
  if ! may_run; then
    ended=$why
    printf 'left\t%s\t%s\n' "$name" "$why" >>"$work/record"
    return 1
  fi
  run_step "$name" "$limit" "$@"
}

# run_step NAME LIMIT COMMAND...: runs it and records how it ended. "cut" is one that another call runs again.
run_step() {
  local name=$1 limit=$2 kind=step code=0 log began=${EPOCHREALTIME/[.,]/} took
  log=$(log_of "$name")
  shift 2
  watched "$part: $name" "$log" limited "$limit" "$@" || code=$?
  took=$((${EPOCHREALTIME/[.,]/} - began))
  case $code in  # timeout's codes; a command may return these by itself within the limit
    124 | 137) [ "$took" -lt $((limit * 1000000)) ] || kind=cut ;;
  esac
  printf '%s\t%s\t%s\t%s.%06d\t%s\t%s\t%s\n' "$kind" "$name" "$code" $((took / 1000000)) $((took % 1000000)) "$limit" \
    "$log" "$*" >>"$work/record"
  # Only the end of the log: reports are sent around.
  { printf -- '== %s: %s\n' "$name" "$*" && tail -c 2000000 "$log" && printf '\n'; } >>"$report/$part.log"
  [ "$code" -ne 0 ] || return 0
  say "$part: $name failed with exit code $code: $*"
  tail -n 20 "$log" | sed 's/^/  | /' >&2
  return "$code"
}

# beside NAME SECONDS COMMAND...: as check, but runs beside the steps that follow, until join.
beside() {
  (trap 'stop 143' TERM && check "$@") &
  besides+=($!)
}

# join: waits for the steps that run beside. Timings need the machine alone.
join() {
  local pid
  for pid in ${besides[@]+"${besides[@]}"}; do
    wait "$pid" || true  # failures are in the record
  done
  besides=()
}

note() {
  say "$part: $*"
  printf 'note\t%s\n' "$*" >>"$work/record"
  printf -- '== %s\n' "$*" >>"$report/$part.log"
}

# Writes the section of the part; 0 when all its steps passed. Holds a lock, so that nothing ends it halfway.
write_report() {
  (flock 9 && "$python" "$root/scripts/compare/gpu_report.py" "$report" --part "$part" --record "$work" \
    --torch "$LOCKSTEP_BUILD_TORCH") 9>"$work/lock"
}

# Every two seconds: logs clock, power and use of the GPU, and writes the report if a step has ended. Every ten it writes
# the report in any case, which then has the repetitions of the step under way: the machine may be gone before that ends.
watch_gpu() {
  local clock turn
  exec {clock}<> <(:)  # a read with a time limit sleeps without a process of its own
  for ((turn = 1;; ++turn)); do
    nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,memory.used \
      --format=csv,noheader >>"$report/clocks.csv" 2>/dev/null || true
    if [ "$work/record" -nt "$report/gpu_check.json" ] || [ $((turn % 5)) -eq 0 ]; then
      write_report || true  # failures are in the record
    fi
    read -r -t 2 -u "$clock" || true
  done
}

# run_part: runs $part. The work of the lease stays, for a second call.
run_part() {
  local watcher
  ended='' besides=() job='' scratch=''
  if [ "$part" = lease ]; then
    work=$lease share=$lease_seconds whole=$lease_seconds deadline=$lease_seconds
    mkdir -p "$work"
  else
    work=$(mktemp -d) scratch=$work share=${LOCKSTEP_GPU_SECONDS:-540} whole=540
    deadline=$((SECONDS + share))
  fi
  : >"$report/$part.log"
  touch "$work/record"
  sed -i '/^left\t/d' "$work/record"  # of an earlier call
  watch_gpu &
  watcher=$!
  "part_$part" || true  # failures are in the record
  join
  # Under the report's lock: not while it writes.
  { flock 9 && kill -KILL "$watcher"; wait "$watcher"; } 9>"$work/lock" 2>/dev/null || true
  write_report || passed=no
  rm -rf "$scratch"
}

stop() {
  # All background jobs and their groups: the signal may come before this script knows a step's process, and before
  # timeout knows its own.
  local pid
  for pid in $(jobs -p); do
    kill -- "-$pid" "$pid" 2>/dev/null || true
  done
  rm -rf "$scratch"
  exit "$1"
}
