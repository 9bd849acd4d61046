# Flags every target of ours gets, and nothing else does.
add_library(trainyard_flags INTERFACE)
target_compile_features(trainyard_flags INTERFACE cxx_std_20)
set(CMAKE_CXX_EXTENSIONS OFF)
target_compile_options(
  trainyard_flags
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor
            # Fused multiply-add rounds once where two operations round twice. With it the same
            # scenario gives different picoseconds on different machines.
            -ffp-contract=off
            # gcc 12 warns falsely of "literal" + std::string (GCC bug 105329).
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
            $<$<BOOL:${TRAINYARD_WERROR}>:-Werror>>)
if(TRAINYARD_SANITIZE)
  # Tracking variables through code that the sanitizers have filled with checks takes gcc longer than
  # compiling it (33 s instead of 16 s for one file), and -Og half as long again as -O1.
  target_compile_options(
    trainyard_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Og -fsanitize=address,undefined
                              -fno-sanitize-recover=all -fno-omit-frame-pointer
                              $<$<CXX_COMPILER_ID:GNU>:-fno-var-tracking>>)
  target_compile_definitions(trainyard_flags INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(trainyard_flags INTERFACE -fsanitize=address,undefined)
endif()

# trainyard_alone(<file>...): sources whose internal names others of their target have too, as algorithms of one
# form do. Builds of presets join sources (CMAKE_UNITY_BUILD), which parses and instantiates what they share once:
# a fourth of the work. These stay apart.
function(trainyard_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# trainyard_library(<name> SOURCES <file>... [ALONE <file>...] [USES <target>...] [PRIVATE_USES <target>...])
# One library per room. USES is the layer drawing of ARCHITECTURE.md; tests/tidy checks that the
# #include lines agree with it. Files are relative to the calling CMakeLists.txt.
function(trainyard_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;ALONE;USES;PRIVATE_USES")
  add_library(trainyard_${name} STATIC ${arg_SOURCES} ${arg_ALONE})
  trainyard_alone(${arg_ALONE})
  add_library(trainyard::${name} ALIAS trainyard_${name})
  target_include_directories(trainyard_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(trainyard_${name} PUBLIC ${arg_USES} PRIVATE trainyard_flags ${arg_PRIVATE_USES})
  trainyard_use_precompiled(trainyard_${name} trainyard_precompiled_product)
  # In the product every narrowing is written out; in tests it would only be noise.
  target_compile_options(trainyard_${name} PRIVATE -Wconversion -Wsign-conversion)
endfunction()

# trainyard_tests(<name> [OPTIMISED] SOURCES <file>... [ALONE <file>...] USES <target>... [LABELS <label>...])
# One doctest binary per room, each case discovered into ctest with the room's name in front. OPTIMISED: in every
# build without sanitizers, and in none with them.
function(trainyard_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OPTIMISED" "" "SOURCES;ALONE;USES;LABELS")
  if(arg_OPTIMISED AND TRAINYARD_SANITIZE)
    return()
  elseif(NOT arg_OPTIMISED AND NOT TRAINYARD_UNIT_TESTS)
    return()
  endif()
  add_executable(${name}_tests ${arg_SOURCES} ${arg_ALONE})
  trainyard_alone(${arg_ALONE})
  target_link_libraries(${name}_tests PRIVATE trainyard_flags trainyard_test_main ${arg_USES})
  target_include_directories(${name}_tests PRIVATE ${PROJECT_SOURCE_DIR})
  trainyard_use_precompiled(${name}_tests trainyard_precompiled_tests)
  target_compile_definitions(${name}_tests PRIVATE TRAINYARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set(labels unit)
  if(arg_LABELS)
    set(labels ${arg_LABELS})
  endif()
  doctest_discover_tests(${name}_tests TEST_PREFIX "${name}: " PROPERTIES LABELS "${labels}")
endfunction()
