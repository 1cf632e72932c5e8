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

# What each operator runs through lies in many files, and is optimized as one where libinnkeeper_torch is linked
# (bench/overhead.py). The objects are ordinary ones as well, for tests and programs, whose links stay fast.
set(INNKEEPER_WHOLE_PROGRAM OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT INNKEEPER_SANITIZE)
  include(CheckIPOSupported)
  check_ipo_supported(RESULT INNKEEPER_WHOLE_PROGRAM LANGUAGES CXX)
endif()
if(INNKEEPER_WHOLE_PROGRAM)
  set(INNKEEPER_FAST_PATH_OPTIONS -O3 -flto=auto -ffat-lto-objects)
  add_link_options("$<$<NOT:$<BOOL:$<TARGET_PROPERTY:INNKEEPER_WHOLE_PROGRAM>>>:-fno-lto>")
endif()

# Warnings for our own code: linked privately, so they never reach who includes us.
add_library(innkeeper_warnings INTERFACE)
target_compile_options(innkeeper_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(innkeeper_warnings INTERFACE -Wthread-safety)
endif()
if(INNKEEPER_WERROR)
  target_compile_options(innkeeper_warnings INTERFACE -Werror)
endif()
