#!/usr/bin/env bash
# torch_package.sh: a project that asks for both Torch and lockstep gets one LibTorch, in either order.
source "$(dirname "$0")/installed.sh"

[ -e "$TORCH/share/cmake/Torch/TorchConfig.cmake" ] || { echo "skipped: $TORCH has no TorchConfig.cmake"; exit 77; }
# The package file of a LibTorch with CUDA, also the one for CPUs of setup.sh, ends without a toolkit.
if [ -e "$TORCH/lib/libtorch_cuda.so" ] && ! command -v nvcc >/dev/null && [ ! -e /usr/local/cuda/bin/nvcc ]; then
  echo "skipped: TorchConfig.cmake of a LibTorch with CUDA demands a CUDA toolkit, and there is none"
  exit 77
fi

# project NAME FIRST SECOND
project() {
  mkdir "$work/$1"
  cat >"$work/$1/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package($2 REQUIRED)
find_package($3 REQUIRED)
if(NOT lockstep_TORCH STREQUAL TORCH_INSTALL_PREFIX)
  message(FATAL_ERROR "lockstep has \${lockstep_TORCH}, Torch \${TORCH_INSTALL_PREFIX}")
endif()
add_executable(consumer consumer.cpp)
target_link_libraries(consumer PRIVATE lockstep::lockstep \${TORCH_LIBRARIES})
CMAKE
  cat >"$work/$1/consumer.cpp" <<'SOURCE'
#include <lockstep/parallel/allreduce.h>

#include <vector>

int main() {
  std::vector<torch::Tensor> tensors{torch::full({3}, 1.f), torch::full({3}, 2.f)};
  lockstep::allreduce(tensors);
  return tensors[1].sum().item<float>() == 9 ? 0 : 1;
}
SOURCE
  build "$work/$1" "-DCMAKE_PREFIX_PATH=$prefix;$TORCH" -DTORCH_CUDA_ARCH_LIST=9.0
  # torch's targets link all of its libraries. setup.sh does not fetch NVIDIA's for CPUs; the complete download has them.
  libraries=$(find "${TORCH%-cpu/torch}-full"/lib/python3*/site-packages/nvidia -name lib -type d 2>/dev/null | paste -sd:) || true
  [ -z "$libraries" ] || export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  missing=$(ldd "$work/$1/build/consumer" | sed -n 's/^\s*\(\S*\) => not found/\1/p' | sort -u | xargs)
  if [ -n "$missing" ]; then
    echo "linked, not run: the machine lacks $missing"
  else
    "$work/$1/build/consumer" || fail "the sum is wrong"
  fi
}

torch_first() { project torch_first Torch lockstep; }
lockstep_first() { project lockstep_first lockstep Torch; }

install_into "$prefix"
run_checks torch_first lockstep_first
