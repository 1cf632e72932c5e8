# innkeeper_layer(name DEPS directory...): the target innkeeper_<name> of one core directory of src/.
#
# DEPS is the directory's row in the layer table: all that it may link to and (with what those link to) include.
# tools/check_layers.py reads the table from these calls. A directory of headers alone is an interface target.
function(innkeeper_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "DEPS")
  list(TRANSFORM layer_DEPS PREPEND innkeeper_ OUTPUT_VARIABLE links)
  set(roots "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  if(sources)
    add_library(innkeeper_${name} STATIC ${sources})
    target_include_directories(innkeeper_${name} PUBLIC ${roots})
    target_link_libraries(innkeeper_${name} PUBLIC ${links} Threads::Threads PRIVATE innkeeper_warnings)
    innkeeper_unity(innkeeper_${name})
    set_property(GLOBAL APPEND PROPERTY INNKEEPER_CORE_OBJECTS $<TARGET_OBJECTS:innkeeper_${name}>)
  else()
    add_library(innkeeper_${name} INTERFACE)
    target_include_directories(innkeeper_${name} INTERFACE ${roots})
    target_link_libraries(innkeeper_${name} INTERFACE ${links} Threads::Threads)
  endif()
endfunction()
