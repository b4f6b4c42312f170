#!/usr/bin/env bash
# tree.sh: what `cmake --install` installs is complete, needs neither the checkout nor the downloads, and replaces an older
# version; find_package(lockstep) takes a LibTorch that fits.
source "$(dirname "$0")/installed.sh"

# A build without the program, or without the library, as scripts/run.sh makes one, is told by its files.
needs_a_whole_build() {
  local missing
  for missing in lockstep lib/liblockstep lib/liblockstep_images; do
    sed "s|$BUILD/$missing|$BUILD/no-$(basename "$missing")|g" "$BUILD/cmake_install.cmake" >"$work/install.cmake"
    ! cmake "-DCMAKE_INSTALL_PREFIX=$work/nothing" -P "$work/install.cmake" >"$work/said" 2>&1 ||
      fail "it was installed without $missing"
    grep -qF "cmake --build $BUILD --target lockstep_cli lockstep_shared lockstep_images_shared" "$work/said" || fail "$(cat "$work/said")"
    [ ! -e "$work/nothing" ] || fail "a part was installed:" "$(find "$work/nothing")"
  done
}

# An older version has left a header, a user has put a file beside it, and the list names a file outside of the prefix.
replaces_an_older_version() {
  local first=$work/first list
  list=$first/$LIBDIR/lockstep/installed_files
  mkdir -p "$first/include/lockstep/old/deep" "$first/$LIBDIR/lockstep"
  touch "$first/include/lockstep/old/deep/gone.h" "$first/include/lockstep/users.h" "$work/outside"
  printf '%s\n' include/lockstep/old/deep/gone.h ../outside "$work/outside" >"$list"
  install_into "$first"
  [ ! -e "$first/include/lockstep/old" ] || fail "the header of an older version is still there"
  [ -e "$first/include/lockstep/users.h" ] || fail "a file that no installation has made was removed"
  [ -e "$work/outside" ] || fail "a file outside of the prefix was removed"
  rm "$first/include/lockstep/users.h"
  cp "$list" "$work/list"
  install_into "$first"
  cmp "$list" "$work/list"
  while read -r file; do
    [ -e "$first/$file" ] || fail "the list names $file, which is not there"
  done <"$list"
  mv "$first" "$prefix"
}

# Headers include each other and torch, and speak of none of the program's flags.
has_the_public_headers() {
  local header flags
  diff <(printf '%s\n' "${headers[@]}" | sort) <(cd "$prefix/include/lockstep" && find . -type f | sed 's,^\./,,' | sort) ||
    fail "the installed headers are not LOCKSTEP_PUBLIC_HEADERS (<: only in the list)"
  while read -r header; do
    [ -e "$prefix/include/$header" ] || fail "a public header includes $header, which is private"
  done < <(grep -rhoP '^\s*#\s*include\s*<\Klockstep/[^>]*' "$prefix/include/lockstep" | sort -u)
  while read -r header; do
    [ -n "$(find "$prefix/include/lockstep" -path "*/$header")" ] || fail "a public header speaks of $header, which is private"
  done < <(grep -rhE '//' "$prefix/include/lockstep" | grep -oE '[a-z_0-9/]+\.h\b' | sort -u)
  ! flags=$(grep -rniE '//.*(--[a-z]|\bflags?\b)' "$prefix/include/lockstep") || fail "public headers name flags:" "$flags"
  ! grep -rnE '#\s*include\s*<(fmt|spdlog|CLI|nlohmann|openssl)/' "$prefix/include/lockstep" ||
    fail "a public header includes a library that users need not have"
}

# Libraries are found from where the programs lie, in the tree, beside a torch that a user has named, or in the system.
needs_nothing_else() {
  local file path found
  for file in "$prefix/bin/lockstep" "$prefix/$LIBDIR/liblockstep.so"; do
    path=$(readelf -d "$file" | sed -n 's/.*R\(UN\)\?PATH.*\[\(.*\)\]/\2/p')
    ! grep -qF -e "$root" -e "$work" <<<"$path" || fail "$file has the path $path"
    [ -z "$TORCH_COPY" ] || ! grep -qF "$TORCH" <<<"$path" || fail "$file has the path $path"
    found=$(ldd "$file")
    ! grep -q 'not found' <<<"$found" || fail "$file lacks a library:" "$found"
    grep -qF "$(realpath "$torch")/lib/libtorch_cpu.so" < <(sed 's/.*=> //; s/ (.*//' <<<"$found" | xargs -r realpath 2>/dev/null) ||
      fail "$file does not load $torch:" "$found"
    ! grep -F "$root" <<<"$found" || fail "$file loads a library of the checkout"
    ! found=$(strings "$file" | grep -F -e "$root/" -e "$TORCH/") || fail "$file has paths of this machine:" "$found"
  done
  [ "$(find "$prefix" -type l -printf '%f\n' | sort | xargs)" = "liblockstep.so liblockstep.so.${VERSION%.*} liblockstep_images.so liblockstep_images.so.${VERSION%.*}" ] ||
    fail "symbolic links:" "$(find "$prefix" -type l -ls)"
  ! found=$(grep -rIlF -e "$root" -e "$work" "$prefix"/{bin,include,share,"$LIBDIR"/{cmake,pkgconfig}}) ||
    fail "files with a path of the checkout or of the first prefix:" "$found"
  [ -z "$TORCH_COPY" ] || ! found=$(grep -rIlF "$TORCH" "$prefix"/{include,share,"$LIBDIR"/{cmake,pkgconfig}}) ||
    fail "files with a path of the downloads:" "$found"
}

the_program_runs() {
  local said
  said=$(cd "$work" && env -i HOME="$work" "$prefix/bin/lockstep" --version) || fail "lockstep --version: $said"
  grep -qF "$VERSION" <<<"$said" || fail "expected $VERSION, found $said"
  (cd "$work" && quietly env -i HOME="$work" "$prefix/bin/lockstep" train --data synthetic --limit-train 512 --limit-test 256 \
    --epochs 1)
}

# Manual page and completions are what the installed program prints.
has_what_the_program_prints() {
  local words
  for words in "man/man1/lockstep.1 man" "bash-completion/completions/lockstep completion bash" \
    "zsh/site-functions/_lockstep completion zsh"; do
    # shellcheck disable=SC2086  # several words
    cmp <("$prefix/bin/lockstep" ${words#* }) "$prefix/share/${words%% *}" || fail "share/${words%% *} differs"
  done
}

# configure ARGUMENT...: configures a project that asks for lockstep. Debian has Ninja with lockstep, and maybe no make.
# Only what is known of the compiler stays from an earlier run.
configure() {
  rm -f "$work/asks/build/CMakeCache.txt"
  cmake -S "$work/asks" -B "$work/asks/build" -G Ninja "-DCMAKE_CXX_COMPILER=$CXX" "-DCMAKE_PREFIX_PATH=$prefix" "$@" \
    >"$work/asked" 2>&1
}

# refuses TEXT [ARGUMENT...]: the configure run fails with this text on one line.
refuses() {
  local text=$1
  shift
  ! configure "$@" || fail "expected: $text" "but it was accepted"
  grep -qF -- "$text" "$work/asked" || fail "expected: $text" "found: $(cat "$work/asked")"
}

accepts() {
  configure "$@" || fail "$(cat "$work/asked")"
  grep -qxF -- "-- torch $expected_torch" "$work/asked" || fail "expected $expected_torch, found: $(cat "$work/asked")"
}

# fake_torch VERSION FILE [SYMBOL]: a folder with what the package looks at; its version stands in FILE.
fake_torch() {
  local folder=$work/fake
  rm -rf "$folder"
  mkdir -p "$folder"/{lib,share/cmake/Torch,include/ATen,include/torch/csrc/api/include/torch}
  touch "$folder"/include/{ATen/ATen.h,torch/csrc/api/include/torch/torch.h}
  echo "${3-_ZNSt7__cxx1112basic_string}" | tee "$folder"/lib/lib{c10,torch_cpu}.so >/dev/null
  case $2 in
    version.py) printf "__version__ = '%s'\n" "$1" ;;
    build-version) echo "$1" ;;
  esac >"$folder/$2"
}

has_licence_and_examples() {
  cmp "$root/LICENSE" "$prefix/share/doc/lockstep/LICENSE"
  diff -r "$root/examples" "$prefix/share/doc/lockstep/examples" --exclude=CMakeLists.txt
}

chooses_torch() {
  local minor=${TORCH_VERSION%.*} own expected_torch fake
  own="lockstep $VERSION was built with LibTorch $TORCH_VERSION"
  fake=$work/fake
  mkdir "$work/asks"
  cat >"$work/asks/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(asks LANGUAGES CXX)
if(NOT ASKED)
  set(ASKED 0.2)
endif()
find_package(lockstep ${ASKED} REQUIRED)
message(STATUS "torch ${lockstep_TORCH}")
CMAKE
  expected_torch=$torch accepts
  refuses "requested version \"0.3\"" -DASKED=0.3
  refuses "requested version \"0.1\"" -DASKED=0.1
  fake_torch "$minor.99+cpu" version.py  # the wheel's folder
  expected_torch=$fake accepts "-DLOCKSTEP_BUILD_TORCH=$work/fake"
  expected_torch=$fake accepts "-DCMAKE_PREFIX_PATH=$prefix;$work/fake"
  expected_torch=$fake accepts "-DCMAKE_PREFIX_PATH=$prefix;$work/fake/share/cmake"
  LOCKSTEP_BUILD_TORCH=$work/fake expected_torch=$fake accepts
  CMAKE_PREFIX_PATH=$prefix:$work/fake expected_torch=$fake accepts -UCMAKE_PREFIX_PATH
  expected_torch=$fake accepts "-DTorch_DIR=$work/fake/share/cmake/Torch"
  fake_torch "$minor.0+cpu" build-version  # an unzipped one
  expected_torch=$fake accepts "-DCMAKE_PREFIX_PATH=$work/fake;$prefix"
  refuses "$own, but there is no LibTorch in $work/nowhere: name a LibTorch $minor by" "-DLOCKSTEP_BUILD_TORCH=$work/nowhere"
  fake_torch 2.7.1+cu128 version.py
  refuses "$own, but LibTorch 2.7.1+cu128 is in $work/fake: name a LibTorch $minor by LOCKSTEP_BUILD_TORCH or CMAKE" \
    "-DLOCKSTEP_BUILD_TORCH=$work/fake"
  fake_torch "$TORCH_VERSION" version.py _ZNSs4_Rep
  refuses "$own of the new C++ ABI, but LibTorch $TORCH_VERSION in $work/fake has the old one" \
    "-DLOCKSTEP_BUILD_TORCH=$work/fake"
}

run_checks needs_a_whole_build replaces_an_older_version has_the_public_headers needs_nothing_else the_program_runs \
  has_what_the_program_prints has_licence_and_examples chooses_torch
