# Finds a package or stops with the name of the Debian package that holds it. Nothing is downloaded.
function(trainyard_find package version debian)
  find_package(${package} ${version} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} ${version} or later was not found. "
                        "On Debian or Ubuntu: apt-get install ${debian}")
  endif()
endfunction()

macro(trainyard_require package version debian)
  trainyard_find(${package} ${version} ${debian})
  find_package(${package} ${version} REQUIRED)
endmacro()

trainyard_require(fmt 9 libfmt-dev)
trainyard_require(nlohmann_json 3.11 nlohmann-json3-dev)
trainyard_require(Boost 1.74 libboost-graph-dev)
trainyard_require(CLI11 2.1 libcli11-dev)

# An allocator for the program: searches and comparisons plan thousands of steps, of many small parts. Optional, as
# nothing but their speed depends on it.
find_package(mimalloc QUIET)
if(NOT mimalloc_FOUND)
  message(STATUS "mimalloc was not found: searches take a ninth longer (Debian and Ubuntu: libmimalloc-dev)")
endif()

# Comes without a package file.
find_path(LIBDEFLATE_INCLUDE_DIR libdeflate.h)
find_library(LIBDEFLATE_LIBRARY deflate)
mark_as_advanced(LIBDEFLATE_INCLUDE_DIR LIBDEFLATE_LIBRARY)
if(NOT LIBDEFLATE_INCLUDE_DIR OR NOT LIBDEFLATE_LIBRARY)
  message(FATAL_ERROR "libdeflate was not found. On Debian or Ubuntu: apt-get install libdeflate-dev")
endif()
add_library(libdeflate::libdeflate UNKNOWN IMPORTED)
set_target_properties(libdeflate::libdeflate PROPERTIES
  IMPORTED_LOCATION ${LIBDEFLATE_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LIBDEFLATE_INCLUDE_DIR})
