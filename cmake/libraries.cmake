# The libraries of others that core and the program are made of: innkeeper_sqlite for the queue, and for the program
# CLI11::CLI11, fmt::fmt-header-only and nlohmann_json::nlohmann_json. Each is the first of these that is there:
#   1. the machine's (find_package);
#   2. Python's: PyTorch brings fmt's headers, and the package nlohmann-json its own;
#   3. an archive of the version named here, held to its checksum: in the directory INNKEEPER_ARCHIVES, else from the
#      network unless INNKEEPER_FETCH is OFF.
# Where none is, the configuration stops with the packages to install. INNKEEPER_CLI=OFF does without the program.
include(FetchContent)
set(INNKEEPER_ARCHIVES "" CACHE PATH "A directory that has these archives, in place of the network")
set(
  INNKEEPER_CLI11_SHA256
  aac0ab42108131ac5d3344a9db0fdf25c4db652296641955720a4fbe52334e22
  CACHE STRING
  "The checksum of CLI11's archive"
)
set(
  INNKEEPER_JSON_SHA256
  a22461d13119ac5c78f205d3df1db13403e58ce1bb1794edc9313677313f4a9d
  CACHE STRING
  "The checksum of nlohmann-json's archive"
)
set(
  INNKEEPER_SQLITE_SHA256
  77823cb110929c2bcb0f5d48e4833b5c59a8a6e40cdea3936b99e199dbbe5784
  CACHE STRING
  "The checksum of SQLite's archive"
)
mark_as_advanced(INNKEEPER_CLI11_SHA256 INNKEEPER_JSON_SHA256 INNKEEPER_SQLITE_SHA256)

# innkeeper_lacks(LIBRARY WHY DEBIAN FEDORA CONDA): remembers what to install; innkeeper_check_libraries() says it.
set(lacking "")
function(
  innkeeper_lacks
  library
  why
  debian
  fedora
  conda
)
  set(lacking ${lacking} "${library}: ${why}" PARENT_SCOPE)
  set(lacking_debian ${lacking_debian} ${debian} PARENT_SCOPE)
  set(lacking_fedora ${lacking_fedora} ${fedora} PARENT_SCOPE)
  set(lacking_conda ${lacking_conda} ${conda} PARENT_SCOPE)
endfunction()

function(innkeeper_check_libraries)
  if(NOT lacking)
    return()
  endif()
  list(JOIN lacking "\n  " lines)
  list(JOIN lacking_debian " " debian)
  list(JOIN lacking_fedora " " fedora)
  list(JOIN lacking_conda " " conda)
  message(
    FATAL_ERROR
    "Libraries of the program innkeeper and its queue are not here:\n  ${lines}\n"
    "Install them:\n  Debian, Ubuntu: apt install ${debian}\n  Fedora: dnf install ${fedora}\n"
    "  conda: conda install -c conda-forge ${conda}\n"
    "Or build the device alone, with INNKEEPER_CLI=OFF:\n"
    "  pip install . --config-settings=cmake.define.INNKEEPER_CLI=OFF"
  )
endfunction()

# innkeeper_archive(DIRECTORY WHY FILE URL SHA256): DIRECTORY is where the archive was unpacked, or empty; WHY says why.
function(
  innkeeper_archive
  directory
  why
  file
  url
  sha256
)
  set(${directory} "" PARENT_SCOPE)
  if(INNKEEPER_ARCHIVES)
    set(archive "${INNKEEPER_ARCHIVES}/${file}")
    if(NOT EXISTS "${archive}")
      set(${why} "not installed, and INNKEEPER_ARCHIVES has no ${file}" PARENT_SCOPE)
      return()
    endif()
  elseif(INNKEEPER_FETCH)
    set(archive "${PROJECT_BINARY_DIR}/archives/${file}")
    if(NOT EXISTS "${archive}")
      message(STATUS "Fetching ${url}")
      file(DOWNLOAD "${url}" "${archive}.part" STATUS status TIMEOUT 300 INACTIVITY_TIMEOUT 30 TLS_VERIFY ON)
      list(GET status 0 code)
      if(NOT code EQUAL 0)
        list(GET status 1 text)
        file(REMOVE "${archive}.part")
        string(REPLACE "\"" "" text "${text}")
        set(${why} "not installed, and ${url} cannot be fetched (${text})" PARENT_SCOPE)
        return()
      endif()
      file(RENAME "${archive}.part" "${archive}")
    endif()
  else()
    set(${why} "not installed, and INNKEEPER_FETCH is OFF" PARENT_SCOPE)
    return()
  endif()
  string(MAKE_C_IDENTIFIER "innkeeper_${file}" name)
  # No such directory, so that the archive's own build is not run: headers are all that is wanted.
  FetchContent_Declare(
    ${name}
    URL "${archive}"
    URL_HASH SHA256=${sha256}
    DOWNLOAD_EXTRACT_TIMESTAMP ON
    SOURCE_SUBDIR none
  )
  FetchContent_MakeAvailable(${name})
  FetchContent_GetProperties(${name} SOURCE_DIR unpacked)
  set(${directory} "${unpacked}" PARENT_SCOPE)
endfunction()

# innkeeper_headers(TARGET DIRECTORY [DEFINITION...])
function(innkeeper_headers target directory)
  add_library(innkeeper_${target} INTERFACE)
  target_include_directories(innkeeper_${target} SYSTEM INTERFACE "${directory}")
  target_compile_definitions(innkeeper_${target} INTERFACE ${ARGN})
  add_library(${target}::${target} ALIAS innkeeper_${target})
endfunction()

# SQLite: of a static library where there is one, so that what we build needs no library of the machine it runs on.
# A conda environment is searched, as CMake's packages are by PATH, whichever compiler and CMake are used.
find_path(INNKEEPER_SQLITE_INCLUDE sqlite3.h HINTS ENV CONDA_PREFIX PATH_SUFFIXES include)
find_library(INNKEEPER_SQLITE_LIBRARY NAMES libsqlite3.a sqlite3 HINTS ENV CONDA_PREFIX PATH_SUFFIXES lib)
if(INNKEEPER_SQLITE_INCLUDE AND INNKEEPER_SQLITE_LIBRARY)
  add_library(innkeeper_sqlite INTERFACE)
  target_include_directories(innkeeper_sqlite SYSTEM INTERFACE "${INNKEEPER_SQLITE_INCLUDE}")
  target_link_libraries(innkeeper_sqlite INTERFACE "${INNKEEPER_SQLITE_LIBRARY}" ${CMAKE_DL_LIBS} m)
elseif(INNKEEPER_CLI OR INNKEEPER_TESTS OR INNKEEPER_BENCH)
  innkeeper_archive(
    directory
    why
    sqlite-amalgamation-3460100.zip
    https://www.sqlite.org/2024/sqlite-amalgamation-3460100.zip
    ${INNKEEPER_SQLITE_SHA256}
  )
  if(directory)
    enable_language(C)
    add_library(innkeeper_sqlite STATIC "${directory}/sqlite3.c")
    target_include_directories(innkeeper_sqlite SYSTEM INTERFACE "${directory}")
    target_compile_definitions(innkeeper_sqlite PRIVATE SQLITE_THREADSAFE=1 SQLITE_OMIT_LOAD_EXTENSION)
    target_link_libraries(innkeeper_sqlite INTERFACE ${CMAKE_DL_LIBS} m)
  else()
    innkeeper_lacks(SQLite "${why}" libsqlite3-dev sqlite-devel sqlite)
  endif()
endif()

if(NOT INNKEEPER_CLI)
  innkeeper_check_libraries()
  return()
endif()

find_package(CLI11 QUIET)
if(NOT CLI11_FOUND)
  innkeeper_archive(
    directory
    why
    CLI11-2.3.2.tar.gz
    https://github.com/CLIUtils/CLI11/archive/v2.3.2.tar.gz
    ${INNKEEPER_CLI11_SHA256}
  )
  if(directory)
    innkeeper_headers(CLI11 "${directory}/include")
  else()
    innkeeper_lacks(CLI11 "${why}" libcli11-dev cli11-devel cli11)
  endif()
endif()

find_package(fmt QUIET)
if(NOT fmt_FOUND)
  if(INNKEEPER_HAS_TORCH AND EXISTS "${INNKEEPER_TORCH_DIR}/include/fmt/format.h")
    innkeeper_headers(fmt "${INNKEEPER_TORCH_DIR}/include" FMT_HEADER_ONLY=1)
    add_library(fmt::fmt-header-only ALIAS innkeeper_fmt)
  else()
    innkeeper_lacks(fmt "not installed, and there is no PyTorch whose headers bring it" libfmt-dev fmt-devel fmt)
  endif()
endif()

find_package(nlohmann_json QUIET)
if(NOT nlohmann_json_FOUND)
  set(directory "")
  set(why "not installed, and Python's package nlohmann_json has no headers")
  if(Python3_EXECUTABLE)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c "import os, nlohmann_json; print(os.path.dirname(nlohmann_json.__file__))"
      OUTPUT_VARIABLE directory
      ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE
    )
  endif()
  if(NOT directory)
    innkeeper_archive(
      directory
      why
      json-3.11.3.zip
      https://github.com/nlohmann/json/releases/download/v3.11.3/include.zip
      ${INNKEEPER_JSON_SHA256}
    )
  endif()
  if(EXISTS "${directory}/include/nlohmann/json.hpp")
    innkeeper_headers(nlohmann_json "${directory}/include")
  elseif(EXISTS "${directory}/nlohmann/json.hpp") # an archive of one directory is unpacked without it
    innkeeper_headers(nlohmann_json "${directory}")
  else()
    innkeeper_lacks(nlohmann-json "${why}" nlohmann-json3-dev json-devel nlohmann_json)
  endif()
endif()
innkeeper_check_libraries()
