# CUDA: a compiler of torch's major version, and torch's CUDA libraries in LibTorch::torch. lockstep includes only the CUDA
# runtime and c10/cuda: ATen/cuda needs the headers of cuBLAS and others.
string(REGEX MATCH "^[0-9]+" _major "${LibTorch_CUDA_VERSION}")
find_program(LOCKSTEP_NVCC_IN_PATH nvcc)
mark_as_advanced(LOCKSTEP_NVCC_IN_PATH)
lockstep_fetched(_fetched "nvcc-*/nvidia/cu${_major}/bin/nvcc")
set(_seen "")
foreach(_nvcc "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}" "${LOCKSTEP_NVCC_IN_PATH}" /usr/local/cuda/bin/nvcc ${_fetched})
  if(NOT EXISTS "${_nvcc}")
    continue()
  endif()
  execute_process(COMMAND "${_nvcc}" --version OUTPUT_VARIABLE _text ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)\\.[0-9]+" _release "${_text}")
  if(CMAKE_MATCH_1 STREQUAL _major)
    set(CMAKE_CUDA_COMPILER "${_nvcc}")
    break()
  endif()
  string(APPEND _seen ", ${_nvcc} is ${_release}")
endforeach()
if(NOT _release OR NOT CMAKE_MATCH_1 STREQUAL _major)
  lockstep_stop("CUDA is on, but there is no CUDA ${_major} compiler, which this LibTorch needs${_seen}"
    "LOCKSTEP_BUILD_CUDA=on scripts/setup.sh, or -DCMAKE_CUDA_COMPILER=<nvcc of CUDA ${_major}>, or -DLOCKSTEP_BUILD_CUDA=off")
endif()

# This machine's GPU; without one, the data-centre generations, and PTX of the last one for newer GPUs. With
# -DCMAKE_CUDA_ARCHITECTURES=90, or CUDAARCHS=90 in the environment, the build takes half the time.
if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE _gpus ERROR_QUIET RESULT_VARIABLE _status)
  if(_status EQUAL 0 AND _gpus MATCHES "GPU 0")
    set(CMAKE_CUDA_ARCHITECTURES native)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120)
  endif()
endif()
enable_language(CUDA)
# For messages: "8.0, 9.0".
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "native")
  set(LOCKSTEP_CUDA_BUILT_FOR "the GPU it was built on")
else()
  string(REGEX REPLACE "([0-9]+)([0-9])(-[a-z]+)?" "\\1.\\2" LOCKSTEP_CUDA_BUILT_FOR "${CMAKE_CUDA_ARCHITECTURES}")
  list(JOIN LOCKSTEP_CUDA_BUILT_FOR ", " LOCKSTEP_CUDA_BUILT_FOR)
endif()
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has it
# The CUDA runtime must be the one that torch loads, never a second copy linked statically.
set(CMAKE_CUDA_RUNTIME_LIBRARY None)

file(GLOB _cudart "${LibTorch_ROOT_DIR}/../nvidia/cu${_major}/lib/libcudart.so.${_major}"
                  "${LibTorch_ROOT_DIR}/lib/libcudart*.so.${_major}*")
if(NOT _cudart)
  find_library(LOCKSTEP_CUDART cudart PATHS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} REQUIRED)
  set(_cudart "${LOCKSTEP_CUDART}")
endif()
list(GET _cudart 0 _cudart)
get_filename_component(_cudart "${_cudart}" REALPATH)
add_library(LibTorch::cudart SHARED IMPORTED)
set_target_properties(LibTorch::cudart PROPERTIES IMPORTED_LOCATION "${_cudart}")
target_include_directories(LibTorch::cudart SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})

lockstep_import_torch_cuda("${LibTorch_ROOT_DIR}")
target_link_libraries(LibTorch::torch INTERFACE LibTorch::cudart)

# NCCL: the copy beside torch, which torch loads; else the one of setup.sh --cuda-compiler, to compile with; else the
# system's. A build without NCCL lacks only --allreduce nccl.
lockstep_fetched(_fetched "nvcc-*/nvidia/nccl/include")
find_path(LOCKSTEP_NCCL_INCLUDE nccl.h
  HINTS "${LibTorch_ROOT_DIR}/../nvidia/nccl/include" ${_fetched})
cmake_path(GET LOCKSTEP_NCCL_INCLUDE PARENT_PATH _nccl)
find_file(LOCKSTEP_NCCL_LIBRARY libnccl.so.2 HINTS "${_nccl}/lib" PATHS /usr/lib/x86_64-linux-gnu /usr/lib64)
mark_as_advanced(LOCKSTEP_NCCL_INCLUDE LOCKSTEP_NCCL_LIBRARY)
if(LOCKSTEP_NCCL_INCLUDE AND LOCKSTEP_NCCL_LIBRARY)
  set(LOCKSTEP_NCCL ON)
  add_library(LibTorch::nccl SHARED IMPORTED)
  set_target_properties(LibTorch::nccl PROPERTIES IMPORTED_LOCATION "${LOCKSTEP_NCCL_LIBRARY}")
  target_include_directories(LibTorch::nccl SYSTEM INTERFACE "${LOCKSTEP_NCCL_INCLUDE}")
else()
  set(LOCKSTEP_NCCL OFF)
endif()
