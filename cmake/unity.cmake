# innkeeper_unity(target): the sources of each directory are compiled as one, since reading headers (PyTorch's, CLI11's)
# is most of what compiling one costs. Calls between files of a directory are inlined as well. Names in the unnamed
# namespaces of a directory's files must differ therefore. INNKEEPER_UNITY=OFF compiles each file by itself, for tools
# that read compile_commands.json (clang-tidy) and where a single file changes again and again (tools/mutate).
option(INNKEEPER_UNITY "Compile the sources of each directory as one" ON)

function(innkeeper_unity target)
  if(NOT INNKEEPER_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH directory)
    cmake_path(GET directory FILENAME group)
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A type of an unnamed namespace inside a named one: no mistake in a file that nobody but its unit includes.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
