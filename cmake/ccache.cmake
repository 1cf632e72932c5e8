# Compiles through ccache where it is installed. Precompiled headers need its sloppiness (their timestamps and
# macros cannot be compared), and -fpch-preprocess with gcc.
find_program(INNKEEPER_CCACHE ccache)
if(INNKEEPER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(
    CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}"
    -E
    env
    "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
    "CCACHE_NOHASHDIR=1"
    "${INNKEEPER_CCACHE}"
  )
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()
