# What every target is compiled with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# Line tables are enough for backtraces and cost little; Debug stays fast enough to run the stress tests.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

find_package(Threads REQUIRED)

# Paths in messages and debug information are relative to the source, so objects are equal in every checkout.
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
# Our shared library exports its symbols to the Python module; nobody replaces them, so calls may be inlined.
add_compile_options(-fno-semantic-interposition)

if(INNKEEPER_SANITIZE)
  add_compile_options(-fsanitize=${INNKEEPER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${INNKEEPER_SANITIZE})
endif()

# What each operator runs through: the engine and the torch layer.
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT INNKEEPER_SANITIZE)
  set(INNKEEPER_OPERATOR_PATH_OPTIONS -O3)
endif()

# Warnings for our own code: linked privately, so they never reach who includes us.
add_library(innkeeper_warnings INTERFACE)
target_compile_options(innkeeper_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(innkeeper_warnings INTERFACE -Wthread-safety)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # At -O3 it sees std::string's operator+ overlap where it cannot (GCC's bug 105651).
  target_compile_options(innkeeper_warnings INTERFACE -Wno-restrict)
endif()
if(INNKEEPER_WERROR)
  target_compile_options(innkeeper_warnings INTERFACE -Werror)
endif()
