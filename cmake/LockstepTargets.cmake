# The product is five static libraries and one program; each folder adds its own sources to them:
#   lockstep_core   sources without torch (files, hashes, worker threads): quick to build, and tested by ThreadSanitizer
#   lockstep_images decoding of PNG and JPEG, which needs nothing else of lockstep but headers. The only one with libpng and
#                   libjpeg: programs that link lockstep::lockstep alone do not need these
#   lockstep        the library's other sources that the program uses
#   lockstep_loops  those that only programs of users do: loops of their own, torch::data. They link its alias
#                   lockstep::lockstep, which brings all three; the README's first command does not build it
#   lockstep_app    app/ except main.cpp, a library so that tests can link it; its sources without torch are the objects of
#                   lockstep_app_core, which are compiled while torch's header is precompiled
#   lockstep_cli    the program `lockstep`: app/main.cpp
# and beside them
#   lockstep_process   the program's process: malloc, its current folder, and how OpenMP's threads wait

# Everyone, inside and outside, writes #include <lockstep/parallel/devices.h>. include/lockstep/ has a link to each folder.
set(LOCKSTEP_INCLUDE_DIR "${PROJECT_SOURCE_DIR}/include")

# Errors of torch's macros name a source file: without these flags, where it lay on the machine that built the program.
foreach(_folder IN ITEMS "${PROJECT_SOURCE_DIR}" "${LOCKSTEP_INCLUDE_DIR}" ${LibTorch_ROOT_DIR})
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${_folder}/=>)
endforeach()

# Ninja builds what stands first first: the header that lockstep_c10d precompiles for all takes one core half a minute.
if(NOT LOCKSTEP_BUILD_CORE_ONLY)
  add_library(lockstep_c10d OBJECT)
endif()

add_library(lockstep_core STATIC)
add_library(lockstep::core ALIAS lockstep_core)
target_include_directories(lockstep_core PUBLIC "${LOCKSTEP_INCLUDE_DIR}")
target_compile_features(lockstep_core PUBLIC cxx_std_20)  # for all users of the headers
target_link_libraries(lockstep_core
  PUBLIC fmt::fmt Threads::Threads
  PRIVATE OpenSSL::Crypto ZLIB::ZLIB nlohmann_json::nlohmann_json xxhash::xxhash lockstep_warnings)

if(LOCKSTEP_BUILD_SANITIZE)
  target_compile_options(lockstep_core PRIVATE -O1)  # loops of kernels would take minutes
endif()

add_library(lockstep_images STATIC)
add_library(lockstep::images ALIAS lockstep_images)
target_include_directories(lockstep_images PUBLIC "${LOCKSTEP_INCLUDE_DIR}")
target_compile_features(lockstep_images PUBLIC cxx_std_20)
target_link_libraries(lockstep_images PRIVATE fmt::fmt PNG::PNG JPEG::JPEG lockstep_warnings)

add_library(lockstep_app_core OBJECT)
target_link_libraries(lockstep_app_core
  PRIVATE lockstep_core CLI11::CLI11 spdlog::spdlog_header_only nlohmann_json::nlohmann_json tomlplusplus::tomlplusplus
    lockstep_warnings)
target_compile_options(lockstep_app_core PRIVATE ${LOCKSTEP_LITTLE_OPTIMISED})

add_library(lockstep STATIC)
target_link_libraries(lockstep PUBLIC lockstep_core PRIVATE nlohmann_json::nlohmann_json lockstep_warnings)
# Loops over elements are in kernels of the core, in sum_chunks.cpp or in torch.
target_compile_options(lockstep PRIVATE ${LOCKSTEP_LITTLE_OPTIMISED})

add_library(lockstep_loops STATIC)
add_library(lockstep::lockstep ALIAS lockstep_loops)
target_link_libraries(lockstep_loops PUBLIC lockstep PRIVATE lockstep_warnings)
target_compile_options(lockstep_loops PRIVATE ${LOCKSTEP_LITTLE_OPTIMISED})

add_library(lockstep_app STATIC)
target_sources(lockstep_app PRIVATE $<TARGET_OBJECTS:lockstep_app_core>)
target_link_libraries(lockstep_app
  PUBLIC lockstep lockstep_image_rows CLI11::CLI11 spdlog::spdlog_header_only nlohmann_json::nlohmann_json
  PRIVATE tomlplusplus::tomlplusplus lockstep_warnings)

# Need not be fast, and is built by everyone: CLI11 takes half as long again at -O2.
target_compile_options(lockstep_app PRIVATE ${LOCKSTEP_LITTLE_OPTIMISED})

# Objects, not a library: nothing refers to their symbols. Sanitizers have their own allocator and must run first.
add_library(lockstep_process INTERFACE)
if(NOT LOCKSTEP_BUILD_SANITIZE)
  add_library(lockstep_process_objects OBJECT support/process/allocator.cpp support/process/current_folder.cpp
    support/process/openmp_wait.cpp)
  target_include_directories(lockstep_process_objects PRIVATE "${LOCKSTEP_INCLUDE_DIR}")
  target_link_libraries(lockstep_process_objects PRIVATE jemalloc::jemalloc lockstep_warnings)
  target_link_libraries(lockstep_process
    INTERFACE $<TARGET_OBJECTS:lockstep_process_objects> jemalloc::jemalloc ${CMAKE_DL_LIBS})
endif()

add_executable(lockstep_cli)
set_target_properties(lockstep_cli PROPERTIES OUTPUT_NAME lockstep RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
target_link_libraries(lockstep_cli PRIVATE lockstep_app lockstep_process lockstep_warnings)

if(LOCKSTEP_BUILD_CORE_ONLY)
  set_target_properties(lockstep_app_core lockstep lockstep_loops lockstep_app lockstep_cli PROPERTIES EXCLUDE_FROM_ALL ON)
else()
  # torch/types.h takes 9 s to compile, precompiled 3 s. torch/torch.h takes 8 s even precompiled: every source instantiates
  # its templates. Sources include what they need beside torch/types.h, never torch/torch.h. Precompiled once, for all, by
  # the sources of c10d, on which the library waits in any case. (CLI11's constants would take each of them 3 s more.)
  target_link_libraries(lockstep PUBLIC LibTorch::torch)
  target_link_libraries(lockstep_c10d
    PRIVATE lockstep_core LibTorch::torch nlohmann_json::nlohmann_json lockstep_warnings)
  target_precompile_headers(lockstep_c10d PRIVATE
    <torch/types.h> <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)
  target_sources(lockstep PRIVATE $<TARGET_OBJECTS:lockstep_c10d>)
  foreach(_target lockstep lockstep_loops lockstep_app)
    target_precompile_headers(${_target} REUSE_FROM lockstep_c10d)
  endforeach()
  set_target_properties(lockstep_c10d PROPERTIES UNITY_BUILD ON)
endif()
if(LOCKSTEP_CUDA)
  target_link_libraries(lockstep_core PRIVATE LibTorch::cudart ${CMAKE_DL_LIBS})  # NVTX looks for a profiler with dlopen
endif()
if(LOCKSTEP_NCCL)
  target_link_libraries(lockstep PRIVATE LibTorch::nccl)
endif()

# Small sources are compiled together: a single one would spend most of its time on templates of torch, whose precompiled
# header does not hold their instances, of CLI11, JSON and {fmt}.
#
# lockstep_even_units(target...): call it when the targets have all their sources. Their units have equally many, and at most
# LOCKSTEP_BUILD_BATCH: a last unit of a few would cost as much again.
function(lockstep_even_units)
  foreach(target IN LISTS ARGN)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    list(LENGTH sources count)
    math(EXPR units "(${count} + ${LOCKSTEP_BUILD_BATCH} - 1) / ${LOCKSTEP_BUILD_BATCH}")
    if(units GREATER 0)
      math(EXPR size "(${count} + ${units} - 1) / ${units}")
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    endif()
  endforeach()
endfunction()

# lockstep_compile_together(target text): sources with this text come last, so that few units compile what it stands for.
# CMake lists units backwards: these, which take longest, are compiled first.
function(lockstep_compile_together target text)
  get_target_property(sources ${target} SOURCES)
  set(together "")
  foreach(source IN LISTS sources)
    if(EXISTS "${source}")
      file(STRINGS "${source}" lines REGEX "${text}" LIMIT_COUNT 1)
      if(lines)
        list(APPEND together "${source}")
      endif()
    endif()
  endforeach()
  list(REMOVE_ITEM sources ${together})
  set_property(TARGET ${target} PROPERTY SOURCES ${sources} ${together})
endfunction()

# lockstep_twin_sources(target x ... [WHEN variable] [AS name]): adds one of two sources, x.cu or x_cuda.cpp in a build with
# CUDA, x_stub.cpp in a build without (it throws a clear error).
# WHEN: a variable in place of LOCKSTEP_CUDA. AS: the first source is x_name.cpp.
function(lockstep_twin_sources target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "WHEN;AS" "")
  if(NOT arg_WHEN)
    set(arg_WHEN LOCKSTEP_CUDA)
  endif()
  if(NOT arg_AS)
    set(arg_AS cuda)
  endif()
  foreach(stem IN LISTS arg_UNPARSED_ARGUMENTS)
    if(NOT ${arg_WHEN})
      set(source "${stem}_stub.cpp")
    elseif(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${stem}.cu")
      set(source "${stem}.cu")
    else()
      set(source "${stem}_${arg_AS}.cpp")
    endif()
    target_sources(${target} PRIVATE "${source}")
    # An object of its own: tests link another one in its place.
    set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()
