# innkeeper_install_library(target): into the Python package's directory, finding PyTorch's libraries beside it
# (site-packages/innkeeper and site-packages/torch/lib are neighbours).
function(innkeeper_install_library target)
  set(rpath "$ORIGIN" "$ORIGIN/../torch/lib")
  if(NOT SKBUILD) # an installation elsewhere uses the PyTorch it was built with
    list(APPEND rpath "${INNKEEPER_TORCH_DIR}/lib")
  endif()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}" INSTALL_RPATH_USE_LINK_PATH OFF)
  install(TARGETS ${target} COMPONENT python LIBRARY DESTINATION innkeeper)
  add_dependencies(innkeeper_package ${target})
endfunction()

# A wheel takes the Python files from pyproject.toml; `cmake --install` makes the same directory by itself.
if(NOT SKBUILD)
  install(
    DIRECTORY "${PROJECT_SOURCE_DIR}/python/innkeeper"
    DESTINATION .
    COMPONENT python
    PATTERN "__pycache__" EXCLUDE
  )
endif()

# The series of PyTorch that the package is built for, which it compares with the one that it finds.
if(INNKEEPER_HAS_TORCH)
  string(REGEX MATCH "^[0-9]+[.][0-9]+" series "${INNKEEPER_TORCH_VERSION}")
  file(
    CONFIGURE
    OUTPUT "${PROJECT_BINARY_DIR}/_built_for.py"
    CONTENT
      [[
"""Written by the build."""

TORCH = "@series@"
]]
    @ONLY
  )
  install(FILES "${PROJECT_BINARY_DIR}/_built_for.py" DESTINATION innkeeper COMPONENT python)
endif()

# The face for C++ programs (include/innkeeper/innkeeper.h), found by innkeeper.cmake_prefix_path. Before 1.0 a minor
# version may change names, so a program asks for one.
include(CMakePackageConfigHelpers)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/innkeeper-config-version.cmake" COMPATIBILITY SameMinorVersion)
configure_file("${PROJECT_SOURCE_DIR}/cmake/version.h.in" "${PROJECT_BINARY_DIR}/version.h" @ONLY)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/innkeeper" DESTINATION innkeeper/include COMPONENT python)
install(FILES "${PROJECT_BINARY_DIR}/version.h" DESTINATION innkeeper/include/innkeeper COMPONENT python)
install(
  FILES "${PROJECT_SOURCE_DIR}/cmake/innkeeper-config.cmake" "${PROJECT_BINARY_DIR}/innkeeper-config-version.cmake"
  DESTINATION innkeeper/share/cmake/innkeeper
  COMPONENT python
)
