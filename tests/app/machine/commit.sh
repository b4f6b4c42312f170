#!/bin/bash
# commit.sh CMAKE FOLDER: cmake/LockstepCommit.cmake of lockstep's FOLDER names the commit of its own checkout only, and
# writes the source only when the commit has changed.
set -euo pipefail
cmake=$1 script=$2/cmake/LockstepCommit.cmake
command -v git >/dev/null || { echo "skipped: git is not installed"; exit 77; }
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_CEILING_DIRECTORIES=$folder
unset GIT_DIR GIT_WORK_TREE
in_checkout() { git -C "$folder/checkout" -c user.name=a -c user.email=a@b "$@"; }

# commit_of FOLDER: what the source says that the script writes for it.
commit_of() {
  "$cmake" -D "SOURCE=$1" -D "OUTPUT=$folder/commit.cpp" -P "$script"
  sed -n 's/.*return "\(.*\)".*/\1/p' "$folder/commit.cpp"
}

check() {
  [ "$2" = "$3" ] || { echo "$1: '$2' instead of '$3'"; exit 1; }
}

mkdir -p "$folder/plain" "$folder/checkout/within"
check "outside of a checkout" "$(commit_of "$folder/plain")" unknown
git init -q "$folder/checkout"
touch "$folder/checkout/file"
in_checkout add file
in_checkout commit -qm first
head=$(in_checkout rev-parse --short=10 HEAD)
check "in a checkout" "$(commit_of "$folder/checkout")" "$head"
check "in another project's checkout" "$(commit_of "$folder/checkout/within")" unknown

commit_of "$folder/checkout" >/dev/null
touch -d '2020-01-01' "$folder/commit.cpp"
commit_of "$folder/checkout" >/dev/null
check "the same commit again" "$(date -r "$folder/commit.cpp" +%Y)" 2020
echo changed >"$folder/checkout/file"
check "with changed files" "$(commit_of "$folder/checkout")" "$head-dirty"
in_checkout commit -qam second
check "after a commit" "$(commit_of "$folder/checkout")" "$(in_checkout rev-parse --short=10 HEAD)"
