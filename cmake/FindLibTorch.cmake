# Finds LibTorch in a site-packages/torch or an unzipped libtorch folder and imports it. (torch's own package file demands
# a CUDA toolkit even for a program without CUDA, and sets global flags.)
#   in    LOCKSTEP_BUILD_TORCH, LOCKSTEP_BUILD_TORCH_UNTRIED, LOCKSTEP_CUDA
#   out   LibTorch::torch (cmake/LockstepCuda.cmake adds CUDA), LibTorch_ROOT_DIR, LibTorch_VERSION,
#         LibTorch_CUDA_VERSION (empty for a CPU-only torch), LibTorch_UNTRIED
set(_wanted 2.15)      # scripts/setup.sh downloads it
set(_tried 2.11 2.15)  # tested versions; support/torch_compat.h says how they differ

include(LockstepTorchFolder)

set(_root "${LOCKSTEP_BUILD_TORCH}")
if(NOT _root)
  # The CPU version is a plain folder, the full one a Python environment, which also serves a build without CUDA.
  lockstep_fetched(_found "torch-${_wanted}.*-full/lib/python3*/site-packages/torch")
  if(NOT LOCKSTEP_CUDA)
    lockstep_fetched(_cpu "torch-${_wanted}.*-cpu/torch")
    list(PREPEND _found ${_cpu})
  endif()
  list(POP_FRONT _found _root)
endif()
if(NOT _root AND LOCKSTEP_CUDA)
  lockstep_stop("no LibTorch with CUDA: LOCKSTEP_BUILD_TORCH is not set and scripts/setup.sh has not fetched one"
    "LOCKSTEP_BUILD_CUDA=on scripts/setup.sh, or -DLOCKSTEP_BUILD_TORCH=<site-packages/torch or libtorch folder>,\n       or -DLOCKSTEP_BUILD_CUDA=off")
elseif(NOT _root)
  lockstep_stop("no LibTorch: LOCKSTEP_BUILD_TORCH is not set and scripts/setup.sh has not fetched one"
    "scripts/setup.sh, or -DLOCKSTEP_BUILD_TORCH=<site-packages/torch or libtorch folder>")
endif()

set(_another "-DLOCKSTEP_BUILD_TORCH=<site-packages/torch or libtorch folder of ${_wanted}>, or leave it out and run scripts/setup.sh")
lockstep_torch_version(LibTorch_VERSION "${_root}")
if(NOT LibTorch_VERSION)
  lockstep_stop("${_root} is not a LibTorch folder: it has neither version.py nor build-version" "${_another}")
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _minor "${LibTorch_VERSION}")
set(LibTorch_UNTRIED OFF)
if(NOT _minor IN_LIST _tried)
  set(LibTorch_UNTRIED ON)
endif()
if(LibTorch_UNTRIED AND NOT LOCKSTEP_BUILD_TORCH_UNTRIED)
  list(JOIN _tried " and " _names)
  lockstep_stop("LibTorch ${LibTorch_VERSION} in ${_root}, but lockstep was tested only with ${_names}"
    "${_another}.\n       LOCKSTEP_BUILD_TORCH_UNTRIED=on builds with this one anyway")
endif()
lockstep_torch_missing(_missing "${_root}")
if(_missing)
  lockstep_stop("LibTorch in ${_root} is incomplete: no ${_missing}" "${_another}")
endif()
lockstep_torch_new_abi(_new_abi "${_root}")
if(NOT _new_abi)
  lockstep_stop("LibTorch in ${_root} was built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), which cannot be linked here"
    "${_another}")
endif()

lockstep_torch_cuda_version(LibTorch_CUDA_VERSION "${_root}" "${LibTorch_VERSION}")
if(LOCKSTEP_CUDA AND NOT LibTorch_CUDA_VERSION)
  if(LOCKSTEP_CUDA_CHOICE STREQUAL "on")
    lockstep_stop("CUDA is on, but LibTorch ${LibTorch_VERSION} in ${_root} is a CPU-only build"
      "-DLOCKSTEP_BUILD_CUDA=off, or -DLOCKSTEP_BUILD_TORCH=<a CUDA build of ${_wanted}>")
  endif()
  set(LOCKSTEP_CUDA OFF)
  set(LOCKSTEP_CUDA_WHY "this LibTorch is a CPU-only build")
endif()
set(LibTorch_ROOT_DIR "${_root}")

# torch has a newer {fmt} than lockstep links, under the same name; this folder with lockstep's {fmt} comes first
# (LockstepLibraries fills it).
set(LOCKSTEP_FMT_FIRST "${PROJECT_BINARY_DIR}/include_first")

lockstep_import_torch("${_root}")
target_include_directories(LibTorch::torch SYSTEM BEFORE INTERFACE "${LOCKSTEP_FMT_FIRST}")
set(LibTorch_FOUND TRUE)
