# find_package(innkeeper): the target innkeeper::innkeeper, for C++ programs on the managed device.
# innkeeper.cmake_prefix_path in Python says where this file is. Links the LibTorch beside the package, or the one
# of INNKEEPER_TORCH_DIR: the one that the package was built with, since PyTorch keeps its binary interface within a
# minor version only.
get_filename_component(_innkeeper_package "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(INNKEEPER_TORCH_DIR "${_innkeeper_package}/../torch" CACHE PATH "The directory of the torch package")
if(NOT EXISTS "${INNKEEPER_TORCH_DIR}/lib/libtorch_cpu.so")
  set(innkeeper_FOUND FALSE)
  set(innkeeper_NOT_FOUND_MESSAGE "PyTorch is not in ${INNKEEPER_TORCH_DIR}; set INNKEEPER_TORCH_DIR to its directory")
  return()
endif()

if(NOT TARGET innkeeper::innkeeper)
  add_library(innkeeper::innkeeper SHARED IMPORTED)
  set_target_properties(
    innkeeper::innkeeper
    PROPERTIES IMPORTED_LOCATION "${_innkeeper_package}/libinnkeeper_torch.so" INTERFACE_COMPILE_FEATURES cxx_std_20
  )
  target_include_directories(innkeeper::innkeeper INTERFACE "${_innkeeper_package}/include")
  target_include_directories(
    innkeeper::innkeeper
    SYSTEM
    INTERFACE "${INNKEEPER_TORCH_DIR}/include" "${INNKEEPER_TORCH_DIR}/include/torch/csrc/api/include"
  )
  # The device registers itself when its library is loaded, whether or not the program names a symbol of it.
  target_link_options(innkeeper::innkeeper INTERFACE -Wl,--no-as-needed -Wl,--allow-shlib-undefined)
  foreach(_innkeeper_library IN ITEMS torch torch_cpu c10)
    target_link_libraries(innkeeper::innkeeper INTERFACE "${INNKEEPER_TORCH_DIR}/lib/lib${_innkeeper_library}.so")
  endforeach()
endif()
unset(_innkeeper_library)
unset(_innkeeper_package)
