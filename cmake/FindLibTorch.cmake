# Finds LibTorch in a site-packages/torch or an unzipped libtorch folder and imports it. (torch's own package file demands
# a CUDA toolkit even for a program without CUDA, and sets global flags.)
#   in    LOCKSTEP_BUILD_TORCH, LOCKSTEP_BUILD_TORCH_UNTRIED, LOCKSTEP_CUDA
#   out   LibTorch::torch (cmake/LockstepCuda.cmake adds CUDA), LibTorch_ROOT_DIR, LibTorch_VERSION,
#         LibTorch_CUDA_VERSION (empty for a CPU-only torch), LibTorch_UNTRIED
set(_wanted 2.15)      # scripts/setup.sh downloads it
set(_tried 2.11 2.15)  # tested versions; support/torch_compat.h says how they differ

# Sets `out` to the group of `regex` in the first of these files that matches.
function(_lockstep_read_version out regex)
  set(${out} "" PARENT_SCOPE)
  foreach(file IN LISTS ARGN)
    if(EXISTS "${file}")
      file(STRINGS "${file}" lines REGEX "${regex}" LIMIT_COUNT 1)
      if(lines MATCHES "${regex}")
        set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

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
_lockstep_read_version(LibTorch_VERSION "([0-9]+\\.[0-9]+\\.[0-9]+[^'\" ]*)"
  "${_root}/version.py" "${_root}/build-version" "${_root}/include/torch/headeronly/version.h")
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
foreach(_file include/ATen/ATen.h include/torch/csrc/api/include/torch/torch.h lib/libc10.so lib/libtorch_cpu.so)
  if(NOT EXISTS "${_root}/${_file}")
    lockstep_stop("LibTorch in ${_root} is incomplete: no ${_file}" "${_another}")
  endif()
endforeach()
# The library's symbols show its ABI: __cxx11 is in the names of the new one.
file(STRINGS "${_root}/lib/libc10.so" _new_abi REGEX "__cxx11" LIMIT_COUNT 1)
if(NOT _new_abi)
  lockstep_stop("LibTorch in ${_root} was built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), which cannot be linked here"
    "${_another}")
endif()

set(LibTorch_CUDA_VERSION "")
if(EXISTS "${_root}/lib/libtorch_cuda.so" AND EXISTS "${_root}/lib/libc10_cuda.so")
  _lockstep_read_version(LibTorch_CUDA_VERSION "cuda.*([0-9][0-9]\\.[0-9])" "${_root}/version.py")
  if(NOT LibTorch_CUDA_VERSION AND LibTorch_VERSION MATCHES "\\+cu([0-9][0-9])([0-9])")
    set(LibTorch_CUDA_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
  endif()
endif()
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

foreach(_library c10 torch_cpu)
  add_library(LibTorch::${_library} SHARED IMPORTED)
  set_target_properties(LibTorch::${_library} PROPERTIES IMPORTED_LOCATION "${_root}/lib/lib${_library}.so")
endforeach()
add_library(LibTorch::torch INTERFACE IMPORTED)
target_include_directories(LibTorch::torch SYSTEM INTERFACE
  "${LOCKSTEP_FMT_FIRST}" "${_root}/include" "${_root}/include/torch/csrc/api/include")
target_compile_definitions(LibTorch::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(LibTorch::torch INTERFACE LibTorch::torch_cpu LibTorch::c10)
# torch's libraries refer to CUDA libraries that a program without CUDA never loads.
target_link_options(LibTorch::torch INTERFACE -Wl,--allow-shlib-undefined)
set(LibTorch_FOUND TRUE)
