# The contents of a LibTorch folder (a site-packages/torch or an unzipped libtorch). For the build and for the installed
# package.

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

# Sets `out` to its version, such as 2.15.0+cu132; empty if the folder is none of LibTorch.
function(lockstep_torch_version out root)
  _lockstep_read_version(version "([0-9]+\\.[0-9]+\\.[0-9]+[^'\" ]*)"
    "${root}/version.py" "${root}/build-version" "${root}/include/torch/headeronly/version.h")
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# Sets `out` to a file that the folder lacks; empty if it is complete.
function(lockstep_torch_missing out root)
  set(${out} "" PARENT_SCOPE)
  foreach(file include/ATen/ATen.h include/torch/csrc/api/include/torch/torch.h lib/libc10.so lib/libtorch_cpu.so)
    if(NOT EXISTS "${root}/${file}")
      set(${out} "${file}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Sets `out` to whether it has the new C++ ABI. The library's symbols show it: __cxx11 is in the names of the new one.
function(lockstep_torch_new_abi out root)
  file(STRINGS "${root}/lib/libc10.so" new_abi REGEX "__cxx11" LIMIT_COUNT 1)
  if(new_abi)
    set(${out} ON PARENT_SCOPE)
  else()
    set(${out} OFF PARENT_SCOPE)
  endif()
endfunction()

# Sets `out` to its CUDA version, such as 13.2; empty for a CPU-only LibTorch.
function(lockstep_torch_cuda_version out root version)
  set(found "")
  if(EXISTS "${root}/lib/libtorch_cuda.so" AND EXISTS "${root}/lib/libc10_cuda.so")
    _lockstep_read_version(found "cuda.*([0-9][0-9]\\.[0-9])" "${root}/version.py")
    if(NOT found AND version MATCHES "\\+cu([0-9][0-9])([0-9])")
      set(found "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
    endif()
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Imports its CPU part as LibTorch::torch.
function(lockstep_import_torch root)
  foreach(library c10 torch_cpu)
    add_library(LibTorch::${library} SHARED IMPORTED)
    set_target_properties(LibTorch::${library} PROPERTIES IMPORTED_LOCATION "${root}/lib/lib${library}.so")
  endforeach()
  add_library(LibTorch::torch INTERFACE IMPORTED)
  target_include_directories(LibTorch::torch SYSTEM INTERFACE
    "${root}/include" "${root}/include/torch/csrc/api/include")
  target_compile_definitions(LibTorch::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(LibTorch::torch INTERFACE LibTorch::torch_cpu LibTorch::c10)
  # torch's libraries refer to CUDA libraries that a program without CUDA never loads.
  target_link_options(LibTorch::torch INTERFACE -Wl,--allow-shlib-undefined)
endfunction()

# Adds its CUDA part to LibTorch::torch. A program refers to no symbol of libtorch_cuda: the linker would drop it, and torch
# would find no CUDA backend.
function(lockstep_import_torch_cuda root)
  target_link_libraries(LibTorch::torch INTERFACE
    "-Wl,--push-state,--no-as-needed,${root}/lib/libtorch_cuda.so,${root}/lib/libc10_cuda.so,--pop-state")
  target_compile_definitions(LibTorch::torch INTERFACE USE_CUDA USE_C10D_NCCL)
endfunction()
