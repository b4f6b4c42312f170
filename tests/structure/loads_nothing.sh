#!/usr/bin/env bash
# loads_nothing.sh PROGRAM COMPILER [ALLOWED...]: the program imports no function that loads a pickle, TorchScript or a
# shared object. So no file that it reads can make it do so. ALLOWED: names that this build may import.
set -euo pipefail
program=$1 compiler=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Names before their parameters. Module::load(InputArchive&) is in the table of virtual functions of every module; it
# does nothing without an InputArchive. InputArchive::read(), which every sampler of a DataLoader calls, takes from an
# archive that a caller has loaded.
refused='^(vtable for |typeinfo for )?(torch::jit::|torch::serialize::InputArchive::(InputArchive|load_from)'
refused+='|torch::pickle_load'
refused+='|caffe2::serialize::|torch::inductor::|torch::nativert::|torch::distributed::rpc::|at::DynamicLibrary::|Py[A-Z_]'
refused+='|(dlopen|dlmopen|__libc_dlopen_mode|ffi_call)(@|$))'

# loaders NM-ARGUMENT...: the refused names among those that a file imports.
loaders() {
  nm --undefined-only -C "$@" | sed -E 's/^ *[Uw] //; s/\(.*//' | grep -E "$refused" | sort -u
}

# A program that imports nothing cannot be checked, such as one that is linked statically.
[ "$(nm -D --undefined-only -C "$program" | grep -c 'at::_ops::')" -gt 0 ] ||
  { echo "$program imports nothing of torch: this test does not see what it calls"; exit 1; }
found=$(loaders -D "$program" || true)
for name in "$@"; do found=$(grep -vE "^$name(@|\$)" <<<"$found" || true); done
[ -z "$found" ] || { printf '%s can load code, by\n%s\n' "$program" "$found"; exit 1; }

# expect CAUGHT TEXT: whether an object file with this source is noticed.
expect() {
  echo "$2" >"$work/probe.cpp"
  "$compiler" -std=c++20 -c "$work/probe.cpp" -o "$work/probe.o"
  local caught=no
  if loaders "$work/probe.o" >"$work/found"; then caught=yes; fi
  [ $caught = "$1" ] || { printf 'caught: %s, expected: %s\n%s\n' $caught "$1" "$2"; exit 1; }
}

archive='namespace torch::serialize { struct InputArchive { InputArchive(); void load_from(const char*); }; }'
expect yes 'extern "C" void* dlopen(const char*, int); void* f() { return dlopen("x", 1); }'
expect yes 'extern "C" void* dlmopen(long, const char*, int); void* f() { return dlmopen(0, "x", 1); }'
expect yes 'namespace torch { int pickle_load(int); } int f() { return torch::pickle_load(1); }'
expect yes 'namespace torch::jit { int load(const char*); } int f() { return torch::jit::load("x"); }'
expect yes 'namespace torch::jit { int import_ir_module(int); } int f() { return torch::jit::import_ir_module(1); }'
expect yes 'namespace torch::jit { int unpickle(int); } int f() { return torch::jit::unpickle(1); }'
expect yes "$archive"' void f() { torch::serialize::InputArchive a; a.load_from("x"); }'  # torch::load()
expect yes 'namespace at { struct DynamicLibrary { DynamicLibrary(int); }; } void f() { at::DynamicLibrary l(1); }'
expect no "$archive"' namespace torch::nn { struct Module { virtual void load(serialize::InputArchive&); }; }
void f(torch::nn::Module& m, torch::serialize::InputArchive& a) { m.torch::nn::Module::load(a); }'
expect no 'namespace torch::serialize { struct InputArchive { void read(int); }; }
void f(torch::serialize::InputArchive& a) { a.read(1); }'
expect no 'extern "C" void* dlsym(void*, const char*); void* f() { return dlsym(nullptr, "x"); }'

# These are torch's names today.
torch=$(ldd "$program" | sed -n 's/.*libtorch_cpu.so => \(.*\) (.*/\1/p')
nm -D --defined-only "$torch" >"$work/torch"
for name in _ZN5torch11pickle_load _ZN5torch3jit4loadE _ZN5torch3jit16import_ir_module _ZN5torch3jit8unpickle \
  _ZN5torch9serialize12InputArchiveC _ZN2at14DynamicLibraryC; do
  grep -q "$name" "$work/torch" || { echo "$torch has no $name: what does it load files with now?"; exit 1; }
done
echo "$program imports nothing that loads code"
