# The probes that measure a machine are the only CUDA in the project, and the only thing that asks for a
# CUDA compiler. Without one the simulator builds and runs all the same. Included at the top: a language
# has to be enabled above all folders that link it, and tests do.
set(TRAINYARD_HAS_CUDA OFF)
if(NOT TRAINYARD_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TRAINYARD_CUDA is '${TRAINYARD_CUDA}'; write AUTO, ON or OFF")
endif()
if(NOT TRAINYARD_CUDA STREQUAL "OFF")
  # Looked for again if an earlier configuration found none: CMake would keep that answer for ever.
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # The C++ standard is asked for by option: CMake 3.25 does not know a CUDA 20 standard of nvcc 13 and
    # fails at generation if CMAKE_CXX_STANDARD or a compile feature asks for one.
    enable_language(CUDA)
    set(TRAINYARD_HAS_CUDA ON)
  elseif(TRAINYARD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TRAINYARD_CUDA=ON, but no CUDA compiler was found. "
                        "Install the CUDA toolkit, add the folder of nvcc to PATH, or set "
                        "CMAKE_CUDA_COMPILER (or the environment's CUDACXX) to its path.")
  else()
    message(STATUS "No CUDA compiler: the calibration probes are not built")
  endif()
endif()
