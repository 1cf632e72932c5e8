# Finds PyTorch through the Python that has it, and names its libraries as imported targets:
#   innkeeper_libtorch         c10, torch_cpu, torch: for src/torch
#   innkeeper_libtorch_python  torch_python and Python's headers: for src/bindings
#   innkeeper_libtorch_cuda    c10_cuda, torch_cuda and CUDA's headers, where PyTorch was built with CUDA
# PyTorch's own CMake package is not used: a CUDA build's asks for the whole CUDA toolkit.
# From 2.11 on all builds use the compiler's own C++ ABI.
# Nothing is cached, so that another environment (pip's isolated builds) is noticed on each configure.
set(INNKEEPER_HAS_TORCH OFF)
string(TOUPPER "${INNKEEPER_TORCH}" wanted)
if(NOT wanted STREQUAL "AUTO" AND NOT INNKEEPER_TORCH)
  return()
endif()

find_package(Python3 3.10 COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
  set(facts_rc 1)
  set(facts_error "no Python 3.10 or newer")
else()
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/torch_facts.py"
    RESULT_VARIABLE facts_rc
    OUTPUT_VARIABLE facts
    ERROR_VARIABLE facts_error
    ERROR_STRIP_TRAILING_WHITESPACE
  )
endif()
if(NOT facts_rc EQUAL 0)
  if(NOT wanted STREQUAL "AUTO")
    message(
      FATAL_ERROR
      "INNKEEPER_TORCH=ON: ${facts_error}. Install PyTorch, 2.11 or newer, or set "
      "Python3_EXECUTABLE to a Python that has it:\n  pip install torch==2.13.*"
    )
  endif()
  message(STATUS "Building core alone: ${facts_error}")
  return()
endif()
cmake_language(EVAL CODE "${facts}")
set(INNKEEPER_HAS_TORCH ON)
if(INNKEEPER_TORCH_VERSION VERSION_LESS 2.11)
  message(
    FATAL_ERROR
    "PyTorch ${INNKEEPER_TORCH_VERSION} of ${Python3_EXECUTABLE} is too old: 2.11 is the oldest\n"
    "  pip install torch==2.13.*"
  )
endif()
if(NOT EXISTS "${INNKEEPER_TORCH_PYTHON_INCLUDE_DIR}/Python.h")
  message(
    FATAL_ERROR
    "The headers of ${Python3_EXECUTABLE} are not in ${INNKEEPER_TORCH_PYTHON_INCLUDE_DIR}\n"
    "Install them:\n  Debian, Ubuntu: apt install python3-dev\n  Fedora: dnf install python3-devel\n"
    "  conda: conda install -c conda-forge python"
  )
endif()
message(STATUS "PyTorch ${INNKEEPER_TORCH_VERSION} of ${Python3_EXECUTABLE}")

function(innkeeper_import_torch_library name)
  add_library(innkeeper_import_${name} SHARED IMPORTED)
  set_target_properties(
    innkeeper_import_${name}
    PROPERTIES IMPORTED_LOCATION "${INNKEEPER_TORCH_DIR}/lib/lib${name}.so"
  )
  target_include_directories(
    innkeeper_import_${name}
    SYSTEM
    INTERFACE "${INNKEEPER_TORCH_DIR}/include" "${INNKEEPER_TORCH_DIR}/include/torch/csrc/api/include"
  )
endfunction()

foreach(name IN ITEMS c10 torch_cpu torch torch_python)
  innkeeper_import_torch_library(${name})
endforeach()
add_library(innkeeper_libtorch INTERFACE)
target_link_libraries(
  innkeeper_libtorch
  INTERFACE innkeeper_import_torch innkeeper_import_torch_cpu innkeeper_import_c10
)
# A CUDA build's libraries need others that lie in directories which only the loader knows.
target_link_options(innkeeper_libtorch INTERFACE -Wl,--allow-shlib-undefined)
add_library(innkeeper_libtorch_python INTERFACE)
target_link_libraries(innkeeper_libtorch_python INTERFACE innkeeper_import_torch_python innkeeper_libtorch)
target_include_directories(innkeeper_libtorch_python SYSTEM INTERFACE "${INNKEEPER_TORCH_PYTHON_INCLUDE_DIR}")

if(INNKEEPER_TORCH_CUDA AND INNKEEPER_CUDA)
  if(NOT INNKEEPER_TORCH_CUDA_INCLUDE_DIRS)
    message(
      FATAL_ERROR
      "PyTorch ${INNKEEPER_TORCH_VERSION} is built for CUDA ${INNKEEPER_TORCH_CUDA}, whose headers are not here.\n"
      "Install them for ${Python3_EXECUTABLE}, or set CUDA_HOME to a toolkit:\n"
      "  CUDA 13: pip install 'nvidia-cuda-runtime==${INNKEEPER_TORCH_CUDA}.*' 'nvidia-cuda-crt==${INNKEEPER_TORCH_CUDA}.*'\n"
      "  CUDA 12: pip install nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12\n"
      "  conda: conda install -c conda-forge cuda-cudart-dev cuda-crt\n"
      "Or build without CUDA GPUs, with INNKEEPER_CUDA=OFF:\n"
      "  pip install . --config-settings=cmake.define.INNKEEPER_CUDA=OFF"
    )
  endif()
  foreach(name IN ITEMS c10_cuda torch_cuda)
    innkeeper_import_torch_library(${name})
  endforeach()
  add_library(innkeeper_libtorch_cuda INTERFACE)
  target_link_libraries(
    innkeeper_libtorch_cuda
    INTERFACE innkeeper_import_torch_cuda innkeeper_import_c10_cuda innkeeper_libtorch
  )
  target_include_directories(innkeeper_libtorch_cuda SYSTEM INTERFACE ${INNKEEPER_TORCH_CUDA_INCLUDE_DIRS})
endif()
