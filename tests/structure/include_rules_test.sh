#!/usr/bin/env bash
# The tree obeys the include rules, and each rule is noticed when it is broken.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

"$here/include_rules.sh" "$root" || { echo "the tree breaks a rule"; exit 1; }

cp -r "$root"/{app,data,docs,models,parallel,support,tests} "$copy"

# breaks FILE LINE: adds this line to this file; the check must fail and name the file. Then takes the line away.
breaks() {
  printf '%s\n' "$2" >> "$copy/$1"
  expect_noticed "$1" "$2"
  sed -i '$ d' "$copy/$1"
  [ -s "$copy/$1" ] || rm "$copy/$1"
}
expect_noticed() {
  local said
  if said=$("$here/include_rules.sh" "$copy"); then echo "not noticed: $2 in $1"; exit 1; fi
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
breaks app/cli/flag_words.cpp '    {"no library says this", "--epochs"},'

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
echo '#include <lockstep/app/bench/step/probe.h>' >"$copy/app/sweep/probe.h"  # this way is allowed
breaks app/bench/step/probe.h '#include <lockstep/app/sweep/probe.h>'
rm "$copy/app/sweep/probe.h"
mkdir "$copy"/app/{unlisted,empty}
breaks app/unlisted/probe.h '#include <lockstep/support/error.h>'
sed -i "s,^| .app/sweep. .*,&\n| \`app/empty\` | nothing |," "$copy/docs/design.md"
expect_noticed app/empty 'a row without files'
sed -i '/^| .app.empty. / d' "$copy/docs/design.md"
rmdir "$copy"/app/{unlisted,empty}

# One file may know torch's version, a second may not.
for file in parallel/probe_a.cpp app/probe_b.cpp; do
  echo '#if TORCH_VERSION_MINOR > 11' >> "$copy/$file"
done
expect_noticed app/probe_b.cpp 'TORCH_VERSION in two files'
rm "$copy"/{parallel/probe_a,app/probe_b}.cpp
"$here/include_rules.sh" "$copy" || { echo "the copy is not as it was"; exit 1; }
echo "include rules hold, and each is noticed when broken"
