# What nearly every source includes takes longer to parse than most sources themselves, so it is parsed once for the
# product and once for the tests. Sources name all they include even so: the preset tidy does without.
#
# trainyard_precompiled(<name> USES <target>... HEADERS <header>...): headers for targets of equal flags.
function(trainyard_precompiled name)
  if(NOT TRAINYARD_PCH)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "USES;HEADERS")
  set(source ${PROJECT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Carries precompiled headers.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE trainyard_flags ${arg_USES})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
  if(TRAINYARD_CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(trainyard_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endfunction()

# trainyard_use_precompiled(<target> <name>): <target> parses what it includes beyond the headers of <name>.
function(trainyard_use_precompiled target name)
  if(TRAINYARD_PCH)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

set(often <algorithm> <array> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <numeric>
          <optional> <set> <span> <string> <string_view> <tuple> <utility> <variant> <vector> <fmt/format.h>)
trainyard_precompiled(trainyard_precompiled_product USES fmt::fmt HEADERS ${often})
