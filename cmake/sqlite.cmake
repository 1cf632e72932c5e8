# innkeeper_sqlite: SQLite, from the archive where there is one, so that what we build needs no library of the machine
# it runs on and nothing is linked to it that does not use it. Where it is not installed there is no such target, and
# the queue is left out: the device needs none.
find_path(INNKEEPER_SQLITE_INCLUDE sqlite3.h)
find_library(INNKEEPER_SQLITE_LIBRARY NAMES libsqlite3.a sqlite3)
if(INNKEEPER_SQLITE_INCLUDE AND INNKEEPER_SQLITE_LIBRARY)
  add_library(innkeeper_sqlite INTERFACE)
  target_include_directories(innkeeper_sqlite SYSTEM INTERFACE "${INNKEEPER_SQLITE_INCLUDE}")
  target_link_libraries(innkeeper_sqlite INTERFACE "${INNKEEPER_SQLITE_LIBRARY}" ${CMAKE_DL_LIBS} m)
elseif(INNKEEPER_TESTS OR INNKEEPER_BENCH)
  message(FATAL_ERROR "SQLite's header or library is missing: install libsqlite3-dev")
else()
  message(STATUS "SQLite is not installed: the queue is left out")
endif()
