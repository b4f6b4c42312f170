#!/usr/bin/env bash
# The tree obeys the include rules, and each rule is noticed when it is broken.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
probes=$(mktemp -d)
trap 'rm -rf "$probes"' EXIT

"$here/include_rules.sh" "$root" || { echo "the tree breaks a rule"; exit 1; }

# A tree that obeys them and has little else.
mkdir -p "$probes"/{data,models,parallel/{training,collectives/gloo},support} \
  "$probes"/tests/{data,models,parallel}
mkdir "$probes/docs"
cp "$root/docs/design.md" "$probes/docs"  # the order of app/'s folders
grep -oE '^\| `app[a-z_/]*`' "$probes/docs/design.md" | tr -d '|` ' | while read -r folder; do
  mkdir -p "$probes/$folder"
  echo '#pragma once' >"$probes/$folder/own.h"
done
"$here/include_rules.sh" "$probes" || { echo "refused without a reason"; exit 1; }

# breaks FILE LINE: adds this line to this file; the check must fail and name the file. Then takes the line away.
breaks() {
  printf '%s\n' "$2" >> "$probes/$1"
  expect_noticed "$1" "$2"
  sed -i '$ d' "$probes/$1"
  [ -s "$probes/$1" ] || rm "$probes/$1"
}
expect_noticed() {
  local said
  if said=$("$here/include_rules.sh" "$probes"); then echo "not noticed: $2 in $1"; exit 1; fi
  grep -qF "$1" <<< "$said" || { echo "noticed, but not named: $1 in: $said"; exit 1; }
}

breaks data/probe.h '#include <lockstep/parallel/devices.h>'
breaks data/probe.cpp '#include <lockstep/models/lenet.h>'
breaks models/probe.h '  #  include <lockstep/data/formats/idx.h>'
breaks models/probe.cpp '#include <lockstep/parallel/devices.h>'
breaks parallel/probe.h '#include <lockstep/data/dataset.h>'
breaks parallel/probe.cu '#include <lockstep/models/lenet.h>'
breaks support/probe.h '#include <lockstep/data/dataset.h>'
breaks parallel/probe.h '#include <lockstep/app/terminal/terminal.h>'
breaks tests/parallel/probe.cpp '#include <lockstep/app/terminal/terminal.h>'
breaks app/probe.cpp '#include <lockstep/tests/support/process.h>'
breaks data/probe.cpp '#include "idx.h"'
breaks data/probe.cpp '#include <spdlog/spdlog.h>'
breaks models/probe.h '#include <CLI/CLI.hpp>'
breaks parallel/probe.cpp '  std::cerr << "slow";'
breaks data/probe.cpp '  std::exit(3);'
breaks parallel/probe.cpp '  throw UsageError("no batch", "give --batch-size");'

breaks parallel/training/probe.cpp '#include <torch/csrc/distributed/c10d/TCPStore.hpp>'
breaks parallel/collectives/probe.cpp '#include <torch/csrc/distributed/c10d/TCPStore.hpp>'
breaks app/probe.cpp '#include <torch/csrc/distributed/c10d/TCPStore.hpp>'
breaks parallel/probe.h '#include <gloo/context.h>'
breaks parallel/collectives/probe.cpp '  # include <gloo/transport/device.h>'
breaks parallel/probe.cpp '#include <nccl.h>'
breaks parallel/training/probe.cpp '#include <nccl.h>'
breaks app/bench/scaling/probe.cpp '#include <lockstep/tests/skip.h>'

# Folders of app/: an include that goes up, and two folders that include each other.
breaks app/terminal/probe.h '#include <lockstep/app/files/json.h>'
breaks app/train/plan/probe.cpp '#include <lockstep/app/train/train.h>'
breaks app/cli/probe.cpp '#  include <lockstep/app/main_probe.h>'
echo '#include <lockstep/app/bench/step/probe.h>' >"$probes/app/sweep/probe.h"  # this way is allowed
breaks app/bench/step/probe.h '#include <lockstep/app/sweep/probe.h>'
rm "$probes/app/sweep/probe.h"
mkdir "$probes"/app/{unlisted,empty}
breaks app/unlisted/probe.h '#include <lockstep/support/error.h>'
sed -i "s,^| .app/sweep. .*,&\n| \`app/empty\` | nothing |," "$probes/docs/design.md"
expect_noticed app/empty 'a row without files'
sed -i '/^| .app.empty. / d' "$probes/docs/design.md"
rmdir "$probes"/app/{unlisted,empty}

# One file may know torch's version, a second may not.
for file in parallel/probe_a.cpp app/probe_b.cpp; do
  echo '#if TORCH_VERSION_MINOR > 11' >> "$probes/$file"
done
expect_noticed app/probe_b.cpp 'TORCH_VERSION in two files'
rm "$probes"/{parallel/probe_a,app/probe_b}.cpp
"$here/include_rules.sh" "$probes" || { echo "the probes are not as they were"; exit 1; }
echo "include rules hold, and each is noticed when broken"
