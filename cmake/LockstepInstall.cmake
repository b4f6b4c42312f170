# `cmake --install` installs:
#   bin/lockstep                         the program
#   lib/liblockstep.so                   the library, which needs no other package when programs are linked with it
#   lib/liblockstep_images.so            decoding of PNG and JPEG, which needs libpng and libjpeg
#   include/lockstep/                    the public headers (cmake/LockstepPublicHeaders.cmake)
#   lib/cmake/lockstep/                  find_package(lockstep)
#   lib/pkgconfig/lockstep.pc, lockstep-images.pc
#   lib/lockstep/torch, lib/lockstep/nvidia   a copy of the LibTorch that scripts/setup.sh has fetched. (One that
#                                        LOCKSTEP_BUILD_TORCH names is used where it is.)
#   lib/lockstep/installed_files         all of these; the next installation removes those that are no longer there
#   share/doc/lockstep/
# All paths among them are relative, so that the tree can be moved.
set(LOCKSTEP_INSTALLS OFF)
if(LOCKSTEP_BUILD_CORE_ONLY OR LOCKSTEP_BUILD_SANITIZE)
  set(LOCKSTEP_INSTALLS_WHY "a build for tests")
elseif(LOCKSTEP_BUILD_BUNDLE)
  set(LOCKSTEP_INSTALLS_WHY "a bundle's static libraries cannot be part of liblockstep.so")
else()
  set(LOCKSTEP_INSTALLS ON)
endif()
if(NOT LOCKSTEP_INSTALLS)
  install(CODE "message(FATAL_ERROR \"lockstep: this build cannot be installed: ${LOCKSTEP_INSTALLS_WHY}\")")
  return()
endif()

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
include(LockstepPublicHeaders)
set(_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
set(_own_dir "${CMAKE_INSTALL_LIBDIR}/lockstep")

# Before all else: `cmake --install` builds nothing, and scripts/run.sh builds the program alone.
install(CODE "set(lockstep_built [==[$<TARGET_FILE:lockstep_cli>;$<TARGET_FILE:lockstep_shared>;$<TARGET_FILE:lockstep_images_shared>]==])
set(lockstep_build_command [==[cmake --build ${PROJECT_BINARY_DIR} --target lockstep_cli lockstep_shared lockstep_images_shared]==])")
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/install/need_built.cmake")

# Then: notes what an older version has installed.
install(CODE "set(lockstep_list [==[${_own_dir}/installed_files]==])")
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/install/note_old_files.cmake")

# --- the library, of the objects of the static libraries
add_library(lockstep_shared SHARED $<TARGET_OBJECTS:lockstep_loops> $<TARGET_OBJECTS:lockstep>
  $<TARGET_OBJECTS:lockstep_c10d> $<TARGET_OBJECTS:lockstep_core>)
set_target_properties(lockstep_shared PROPERTIES
  OUTPUT_NAME lockstep EXPORT_NAME lockstep VERSION "${PROJECT_VERSION}"
  SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib" LINKER_LANGUAGE CXX)
target_compile_features(lockstep_shared INTERFACE cxx_std_20)
target_link_libraries(lockstep_shared PUBLIC LibTorch::torch
  PRIVATE fmt::fmt OpenSSL::Crypto ZLIB::ZLIB Threads::Threads gomp)
target_link_options(lockstep_shared PRIVATE -Wl,--no-undefined)
if(LOCKSTEP_CUDA)
  target_link_libraries(lockstep_shared PRIVATE LibTorch::cudart ${CMAKE_DL_LIBS})
endif()
if(LOCKSTEP_NCCL)
  target_link_libraries(lockstep_shared PRIVATE LibTorch::nccl)
endif()

# --- decoding of images, a library of its own: only its users need libpng and libjpeg, and none of them torch
add_library(lockstep_images_shared SHARED $<TARGET_OBJECTS:lockstep_images>)
set_target_properties(lockstep_images_shared PROPERTIES
  OUTPUT_NAME lockstep_images EXPORT_NAME images VERSION "${PROJECT_VERSION}"
  SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib" LINKER_LANGUAGE CXX)
target_compile_features(lockstep_images_shared INTERFACE cxx_std_20)
target_link_libraries(lockstep_images_shared PRIVATE fmt::fmt PNG::PNG JPEG::JPEG)
target_link_options(lockstep_images_shared PRIVATE -Wl,--no-undefined)

# --- LibTorch: a copy, or where it is
include(LockstepInstallTorch)

install(TARGETS lockstep_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS lockstep_shared lockstep_images_shared EXPORT lockstep LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
foreach(_header IN LISTS LOCKSTEP_PUBLIC_HEADERS)
  cmake_path(GET _header PARENT_PATH _folder)
  install(FILES "${PROJECT_SOURCE_DIR}/${_header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${_folder}")
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
foreach(_example own_model own_loop regression character_gpt gan policy_gradient augmentation)
  install(FILES "${PROJECT_SOURCE_DIR}/examples/${_example}.cpp" DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples")
endforeach()

# --- what the program prints: lockstep_install_printed(file folder word...) installs the output of `lockstep word...`
# A build with CUDA may not run on the machine that builds it: then these files are left out.
function(lockstep_install_printed name folder)
  set(printed "${PROJECT_BINARY_DIR}/install/${name}")
  list(JOIN ARGN " " words)
  install(CODE "file(REMOVE [==[${printed}]==])
  execute_process(COMMAND [==[$<TARGET_FILE:lockstep_cli>]==] ${words} OUTPUT_FILE [==[${printed}]==] RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    file(REMOVE [==[${printed}]==])
    message(WARNING \"not installed: ${folder}/${name}, since 'lockstep ${words}' does not run here (\${result})\")
  endif()")
  install(FILES "${printed}" DESTINATION "${folder}" OPTIONAL)
endfunction()
lockstep_install_printed(lockstep.1 "${CMAKE_INSTALL_MANDIR}/man1" man)
lockstep_install_printed(lockstep "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" completion bash)
lockstep_install_printed(_lockstep "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" completion zsh)

# --- find_package(lockstep)
set(LOCKSTEP_PACKAGE_CUDA "")
set(LOCKSTEP_PC_DEFINITIONS "-DUSE_DISTRIBUTED -DUSE_C10D_GLOO")
set(LOCKSTEP_PC_CUDA "")
if(LOCKSTEP_CUDA)
  set(LOCKSTEP_PACKAGE_CUDA "${LibTorch_CUDA_VERSION}")
  string(APPEND LOCKSTEP_PC_DEFINITIONS " -DUSE_CUDA -DUSE_C10D_NCCL")
  set(LOCKSTEP_PC_CUDA "-Wl,--push-state,--no-as-needed -ltorch_cuda -lc10_cuda -Wl,--pop-state ")
endif()
if(LOCKSTEP_INSTALLED_TORCH)
  set(LOCKSTEP_PACKAGE_TORCH "\${PACKAGE_PREFIX_DIR}/${LOCKSTEP_INSTALLED_TORCH}")
  set(LOCKSTEP_PC_TORCH "\${prefix}/${LOCKSTEP_INSTALLED_TORCH}")
else()
  set(LOCKSTEP_PACKAGE_TORCH "${LibTorch_ROOT_DIR}")
  set(LOCKSTEP_PC_TORCH "${LibTorch_ROOT_DIR}")
endif()
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake DESTINATION "${_cmake_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/install/lockstepConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/install/lockstepConfig.cmake" INSTALL_DESTINATION "${_cmake_dir}"
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/install/lockstepConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/install/lockstepConfig.cmake"
  "${PROJECT_BINARY_DIR}/install/lockstepConfigVersion.cmake" "${PROJECT_SOURCE_DIR}/cmake/LockstepTorchFolder.cmake"
  DESTINATION "${_cmake_dir}")

# --- pkg-config
file(RELATIVE_PATH LOCKSTEP_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" LOCKSTEP_PC_PREFIX "${LOCKSTEP_PC_PREFIX}")
foreach(_name lockstep lockstep-images)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/install/${_name}.pc.in" "${PROJECT_BINARY_DIR}/install/${_name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/install/${_name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()

# After all else.
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/install/remove_old_files.cmake")
