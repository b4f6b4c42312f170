#!/usr/bin/env bash
# structure_test.sh cycles|types|mirror|comments|format: one check of the whole tree, and proof, in a tree with nothing
# else, that it notices what it looks for.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
probes=$(mktemp -d)
trap 'rm -rf "$probes"' EXIT

# Empty folders of the tree's names.
fresh_tree() {
  rm -rf "${probes:?}"/*
  mkdir -p "$probes"/{app,data,examples,models,parallel,scripts,support,tests/{app,data,models,parallel,support}}
  cp "$root/.clang-format" "$probes"
}

# expect_noticed CHECK TEXT: the check fails on the probes and names TEXT.
expect_noticed() {
  local said
  if said=$("$1" "$probes"); then echo "not noticed: $2"; exit 1; fi
  grep -qF -- "$2" <<<"$said" || { printf 'noticed, but "%s" is not in:\n%s\n' "$2" "$said"; exit 1; }
}

# expect_passes CHECK: the check passes on the probes.
expect_passes() { "$1" "$probes" || { echo "refused without a reason"; exit 1; }; }

find_cycles() { python3 "$here/include_cycles.py" "$1"; }
find_types() { python3 "$here/same_types.py" "$1"; }

# Prints folders of tests without the folder that they test; fails when there is one. What tests/support has of its own
# may have tests, too.
find_strays() {
  local folder found=
  # An emulation for tests, and programs of users.
  local -A alone=([support/cuda_emulation]=1 [parallel/programs]=1)
  while read -r folder; do
    [ -d "$1/$folder" ] || [ -n "${alone[$folder]:-}" ] ||
      found+="tests/$folder has tests, but there is no $folder"$'\n'
  done < <(cd "$1/tests" && find app data models parallel support -name '*_test.cpp' -printf '%h\n' | sort -u)
  [ -z "$found" ] || { printf '%s' "$found"; return 1; }
}

# Prints the lines of C++ on which a comment begins without a subject; fails when there is one. A line goes on with the
# comment above it at the same column: only the first one is judged.
find_comments() {
  local found
  # shellcheck disable=SC2016  # awk's fields
  found=$(cd "$1" && find app data examples models parallel scripts support tests \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
    xargs -0 awk '
      FNR == 1 { above = 0 }
      {
        at = match($0, /(^|[ \t])\/\//) ? RSTART + RLENGTH : 0
        alone = $0 ~ /^[ \t]*\/\//
        begins = at && !(alone && at == above)
        if (begins && substr($0, at) ~ /^[\/!<]*[ \t]*(Of|Those|What|Whether)([^A-Za-z0-9_]|$)/)
          print FILENAME ":" FNR ":" $0
        above = at
      }')
  [ -z "$found" ] || { echo "$found"; return 1; }
}

# Prints the files that clang-format would change; fails when there is one.
find_format() {
  local found
  found=$(find "$1"/{app,data,examples,models,parallel,scripts,support,tests} \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    { xargs -0 "$clang_format" --dry-run --Werror 2>&1 || true; } |
    sed -n 's/:[0-9]*:[0-9]*: error: .*//p' | sort -u)
  [ -z "$found" ] || { echo "$found"; return 1; }
}

cycles() {
  find_cycles "$root"
  fresh_tree
  mkdir "$probes/app/probe"
  echo '#include <lockstep/app/probe/b.h>' >"$probes/app/probe/a.h"
  expect_passes find_cycles
  echo '  #  include <lockstep/app/probe/c.h>' >"$probes/app/probe/b.cpp"  # a module is header and source
  echo '#include <lockstep/app/probe/a.h>' >"$probes/app/probe/c.h"
  expect_noticed find_cycles 'app/probe/a -> app/probe/b -> app/probe/c -> app/probe/a'
  fresh_tree
  echo '#include <lockstep/parallel/probe_b.h>' >"$probes/parallel/probe_a.h"
  echo '#include <lockstep/parallel/probe_a.h>' >"$probes/parallel/probe_b.h"
  expect_noticed find_cycles 'parallel/probe_a.h -> parallel/probe_b.h -> parallel/probe_a.h'
}

# two_types FIRST SECOND: these definitions in two files.
two_types() {
  fresh_tree
  printf 'namespace lockstep {\n%s\n}\n' "$1" >"$probes/app/probe_a.h"
  printf 'namespace lockstep {\n%s\n}\n' "$2" >"$probes/app/probe_b.cpp"
}

types() {
  find_types "$root"
  two_types 'struct Probe { int a; };' 'struct Probe { double b; };'
  expect_noticed find_types 'lockstep::Probe in app/probe_a.h, app/probe_b.cpp'
  two_types 'enum class Probe : int { kA };' 'class Probe final : public Base { int b; };'
  expect_noticed find_types 'lockstep::Probe'
  two_types 'const char* brace = "{"; struct Probe { int a; };' "char brace = '{'; // {"$'\nstruct Probe { float a; };'
  expect_noticed find_types 'lockstep::Probe'
  two_types 'namespace inner { struct Probe { int a; }; }' 'namespace inner { struct Probe { long a; }; }'
  expect_noticed find_types 'lockstep::inner::Probe'
  # No clash: a type of one file alone, one inside a function or another type, a declaration, and the same text again.
  two_types 'struct Probe { int a; };' 'namespace { struct Probe { int b; }; }'
  expect_passes find_types
  two_types 'struct Probe { int a; };' 'void f() { struct Probe { int b; }; } struct O { struct Probe { int c; }; };'
  expect_passes find_types
  two_types 'struct Probe { int a; };' 'struct Probe; struct  Probe {  int a;  };  // same'
  expect_passes find_types
}

mirror() {
  find_strays "$root"
  fresh_tree
  expect_passes find_strays
  mkdir -p "$probes/tests/app/probe"
  touch "$probes/tests/app/probe/probe_test.cpp"
  expect_noticed find_strays 'tests/app/probe has tests, but there is no app/probe'
}

# probe SUFFIX LINE...: these lines in app/probe.SUFFIX.
probe() {
  rm -f "$probes"/app/probe.*
  printf '%s\n' "${@:2}" >"$probes/app/probe.$1"
}

comments() {
  find_comments "$root" || { echo "a comment begins with its subject, not with Of, Those, What or Whether"; exit 1; }
  fresh_tree
  probe h 'int a;' '// Whether it is there.'
  expect_noticed find_comments 'app/probe.h:2:// Whether it is there.'
  probe cu 'struct Probe {' '  // What it has' '  // beside others.' '};'
  expect_noticed find_comments app/probe.cu:2:
  probe cpp 'int a;  // Those of a step' '// Of a step.'
  expect_noticed find_comments app/probe.cpp:1:
  expect_noticed find_comments app/probe.cpp:2:
  probe cuh '/// What'
  expect_noticed find_comments app/probe.cuh:1:
  # No beginning: a later line of a comment, also of one beside code, the middle of a line, a longer word, and a string.
  probe h '// It names the fields.' '// Of these it has two.' '//' '// What is left is empty.'
  expect_passes find_comments
  probe h 'int a;  // the first one.' '        // Whether it is the last one is unknown.'
  expect_passes find_comments
  probe h '// It is the first. What follows is not.' 'int a;  // Office hours' 'auto b = "//What";'
  expect_passes find_comments
}

format() {
  clang_format=$(command -v clang-format-14 || command -v clang-format) ||
    { echo "skipped: no clang-format (scripts/setup.sh --lint installs it)"; exit 77; }
  local version
  version=$("$clang_format" --version)
  [[ $version =~ version\ 14\. ]] ||
    { echo "skipped: versions format differently; this needs clang-format 14, found $version"; exit 77; }
  find_format "$root" || { echo "clang-format -i changes these files"; exit 1; }
  fresh_tree
  expect_passes find_format
  printf 'int  probe( ) ;\n' >"$probes/support/probe.cpp"
  expect_noticed find_format support/probe.cpp
}

"$1"
echo "the tree passes the check of $1, and what it looks for is noticed"
