# LibTorch for the installed tree, and where its programs find it. What scripts/setup.sh has fetched lies in one user's
# cache: its libraries and headers are copied. A LibTorch that LOCKSTEP_BUILD_TORCH names outside of the cache stays there.
#   in    _own_dir: lockstep's own folder of the installed tree, relative to its prefix
#   out   LOCKSTEP_INSTALLED_TORCH: the copy, relative to the prefix; empty: LibTorch_ROOT_DIR is used
#         the INSTALL_RPATH of lockstep_cli and lockstep_shared
lockstep_cache_folder(_cache)
file(REAL_PATH "${_cache}" _cache)
file(REAL_PATH "${LibTorch_ROOT_DIR}" _torch)
cmake_path(GET _torch PARENT_PATH _site)
cmake_path(IS_PREFIX _cache "${_torch}" _torch_is_fetched)

set(LOCKSTEP_INSTALLED_TORCH "")
set(_runtime_dirs "${_torch}/lib")  # relative to the prefix, or absolute
if(_torch_is_fetched)
  set(LOCKSTEP_INSTALLED_TORCH "${_own_dir}/torch")
  set(_runtime_dirs "${_own_dir}/torch/lib")
  install(DIRECTORY "${_torch}/include" DESTINATION "${_own_dir}/torch" MESSAGE_NEVER)
  file(GLOB _files "${_torch}/lib/*.so*" "${_torch}/version.py" "${_torch}/build-version"
       "${_site}/nvidia/*/lib/*.so*" "${_site}/*.dist-info/licenses/LICENSE*" "${_site}/*.dist-info/licenses/License*")
  list(FILTER _files EXCLUDE REGEX "/lib(torch_python|torch_global_deps|shm)[^/]*$")
  if(NOT LOCKSTEP_CUDA)  # of CUDA's libraries libtorch_cpu.so names two
    set(_wanted_of_nvidia ${_files})
    list(FILTER _files EXCLUDE REGEX "/nvidia/|/torch/lib/[^/]*(cuda|nvrtc|nvshmem|torch\\.so)")
    list(FILTER _wanted_of_nvidia INCLUDE REGEX "/nvidia/.*/lib(cudart|cupti)\\.so[^/]*$")
    list(APPEND _files ${_wanted_of_nvidia})
  endif()
  foreach(_file IN LISTS _files)
    file(RELATIVE_PATH _file_there "${_site}" "${_file}")
    cmake_path(GET _file_there PARENT_PATH _folder)
    install(PROGRAMS "${_file}" DESTINATION "${_own_dir}/${_folder}")
  endforeach()
endif()

# Libraries that lockstep itself links: beside torch, where all of them are copied; fetched otherwise; or the system's.
foreach(_target LibTorch::cudart LibTorch::nccl)
  if(NOT TARGET ${_target})
    continue()
  endif()
  get_target_property(_library ${_target} IMPORTED_LOCATION)
  file(REAL_PATH "${_library}" _library)
  cmake_path(GET _library PARENT_PATH _folder)
  cmake_path(IS_PREFIX _cache "${_folder}" _library_is_fetched)
  if(_library_is_fetched)
    string(REGEX REPLACE ".*/(nvidia/[^/]*/lib)$" "${_own_dir}/\\1" _folder "${_folder}")
    install(PROGRAMS "${_library}" DESTINATION "${_folder}")
  endif()
  list(APPEND _runtime_dirs "${_folder}")
endforeach()
list(REMOVE_DUPLICATES _runtime_dirs)

# lockstep_set_install_rpath(target folder): for a file in this folder of the prefix.
function(lockstep_set_install_rpath target folder)
  set(rpath "")
  foreach(dir IN LISTS _runtime_dirs)
    if(NOT IS_ABSOLUTE "${dir}")
      file(RELATIVE_PATH dir "/${folder}" "/${dir}")
      set(dir "$ORIGIN/${dir}")
    endif()
    list(APPEND rpath "${dir}")
  endforeach()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
endfunction()
lockstep_set_install_rpath(lockstep_cli "${CMAKE_INSTALL_BINDIR}")
lockstep_set_install_rpath(lockstep_shared "${CMAKE_INSTALL_LIBDIR}")
