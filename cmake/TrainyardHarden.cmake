# What distributions ask of a program that reads files from strangers: checked copies, stack canaries, addresses
# that are random and tables of functions that nobody writes to, jumps that land where jumps may; and no path of the
# machine that built it. Sanitizers check more, and do not go together with checked copies.
option(TRAINYARD_HARDEN "Checked copies, stack protector, PIE, full RELRO, CET, no paths" ON)
if(TRAINYARD_HARDEN AND NOT TRAINYARD_SANITIZE)
  # -fPIE by hand: CMake would compile what goes into libraries, ours too, for shared ones, where calls are not inlined.
  set(hardened -fPIE -fstack-protector-strong -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND hardened -fcf-protection=full)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${hardened}>")
  # glibc warns of checked copies that are compiled without optimisation.
  add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
  add_link_options($<$<LINK_LANGUAGE:CXX>:-pie>)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    add_link_options($<$<LINK_LANGUAGE:CXX>:LINKER:-z,relro,-z,now,-z,noexecstack>)
  endif()
endif()
