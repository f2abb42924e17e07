# find_package(ream): the target ream::ream, the C interface of Ream.
get_filename_component(_ream_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET ream::ream)
  add_library(ream::ream SHARED IMPORTED)
  set_target_properties(ream::ream PROPERTIES
    IMPORTED_LOCATION "${_ream_prefix}/lib/ream/libream.so"
    IMPORTED_SONAME "libream.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_ream_prefix}/include")
endif()
unset(_ream_prefix)
