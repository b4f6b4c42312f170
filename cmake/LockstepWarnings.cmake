# Warnings are errors, on our own code only: torch and the other libraries are SYSTEM includes.
add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror>)
if(LOCKSTEP_BUILD_SANITIZE)
  target_compile_options(lockstep_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LOCKSTEP_BUILD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(lockstep_warnings INTERFACE -fsanitize=${LOCKSTEP_BUILD_SANITIZE})
endif()
