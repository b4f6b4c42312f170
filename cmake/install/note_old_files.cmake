# Reads the list that an earlier installation has left in the prefix: lockstep_old_files, relative to the prefix.
set(lockstep_prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
set(lockstep_old_files "")
if(EXISTS "${lockstep_prefix}/${lockstep_list}")
  file(STRINGS "${lockstep_prefix}/${lockstep_list}" lockstep_old_files)
endif()
