# Sourced by the scripts that build: configures and builds one preset in build/<preset>.
# shellcheck shell=bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Prints the number of compilers to run: one per core, as far as memory allows. One that uses torch takes 2.5 GB.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 2500000) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# configure PRESET: configures unless the last configure run of the folder had the same switches. CMake itself notices
# changed files, but not changed switches. A folder with tests is kept when no tests are asked for.
configure() {
  local preset=$1 folder=$root/build/$1 arguments=() configured tests=-DLOCKSTEP_BUILD_TESTS environment
  case $preset in  # the other presets set CUDA themselves
    release | debug) arguments+=("-DLOCKSTEP_BUILD_CUDA=${LOCKSTEP_BUILD_CUDA:-auto}") ;;
  esac
  [ -z "${LOCKSTEP_BUILD_TORCH:-}" ] || arguments+=("-DLOCKSTEP_BUILD_TORCH=$(realpath -m "$LOCKSTEP_BUILD_TORCH")")
  [ -z "${LOCKSTEP_BUILD_TORCH_UNTRIED:-}" ] ||
    arguments+=("-DLOCKSTEP_BUILD_TORCH_UNTRIED=$LOCKSTEP_BUILD_TORCH_UNTRIED")
  [ -z "${LOCKSTEP_BUILD_BATCH:-}" ] || arguments+=("-DLOCKSTEP_BUILD_BATCH=$LOCKSTEP_BUILD_BATCH")
  [ -z "${LOCKSTEP_BUILD_BUNDLE:-}" ] || arguments+=("-DLOCKSTEP_BUILD_BUNDLE=$(realpath -m "$LOCKSTEP_BUILD_BUNDLE")")
  environment="$cache${CUDAARCHS:+ CUDAARCHS=$CUDAARCHS}"  # CMake reads both by itself
  configured=$(cat "$folder/configured_with" 2>/dev/null || true)
  if [ -n "${LOCKSTEP_BUILD_TESTS:-}" ]; then
    arguments+=("$tests=$LOCKSTEP_BUILD_TESTS")
  elif [ "$configured" = "$environment ${arguments[*]} $tests=on" ]; then
    arguments+=("$tests=on")
  fi
  if [ -e "$folder/build.ninja" ] && [ "$configured" = "$environment ${arguments[*]}" ]; then
    return
  fi
  mkdir -p "$folder"
  rm -f "$folder/configured_with"
  cd "$root"
  step "configure $preset" "the message above; rm -r $folder starts afresh" \
    cmake --preset "$preset" --fresh "${arguments[@]}"
  echo "$environment ${arguments[*]}" >"$folder/configured_with"
}

configure_and_build() {
  local preset=$1 targets=$2
  configure "$preset"
  # shellcheck disable=SC2086  # several targets
  step "build $preset" "the first error in the log; rm -r $root/build/$preset starts afresh" \
    cmake --build "$root/build/$preset" --parallel "$(build_jobs)" --target $targets
}

# build PRESET TARGETS: configures and builds; one run at a time in each folder. Prints nothing when nothing is to do.
build() { locked "$root/build/$1.lock" configure_and_build "$@"; }

# find_build TARGETS [--built FOLDER] [ARG...]: sets `built` to that folder, or to the release build, whose targets it
# builds. Sets `arguments` to the rest.
find_build() {
  local targets=$1
  shift
  if [ "${1:-}" = --built ]; then
    need_value "a folder" "$@"
    built=$2
    shift 2
  else
    "$root/scripts/setup.sh" --quiet
    build release "$targets"
    built=$root/build/release
  fi
  [ -x "$built/lockstep" ] || die "$built/lockstep is missing" "build the target lockstep_cli"
  # shellcheck disable=SC2034  # used by the script that sources this
  arguments=("$@")
}
