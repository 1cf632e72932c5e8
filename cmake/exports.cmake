# innkeeper_export(target list): has the linker hide each symbol of a shared library that the file `list` does not name.
#
# A line of the file is the name of a function or a variable with its namespaces, without parameters: all overloads are
# meant. `type NAME` is what exceptions of a class need: its typeinfo and its vtable. `c NAME` has no C++ name. The
# names are turned into patterns of mangled ones (Itanium C++ ABI), which GNU ld, gold and lld all match.
function(innkeeper_export target list)
  file(STRINGS "${list}" lines REGEX "^[^#]")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${list}")
  set(patterns "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^c (.+)$")
      string(APPEND patterns "    ${CMAKE_MATCH_1};\n")
      continue()
    endif()
    string(REGEX REPLACE "^type " "" name "${line}")
    string(REPLACE "::" ";" parts "${name}")
    set(mangled "")
    set(scope "")
    foreach(part IN LISTS parts)
      if(part STREQUAL scope)
        string(APPEND mangled "C[12]")
      elseif(part STREQUAL "~${scope}")
        string(APPEND mangled "D[012]")
      elseif(part STREQUAL "operator=")
        string(APPEND mangled "aS")
      elseif(part STREQUAL "operator()")
        string(APPEND mangled "cl")
      else()
        string(LENGTH "${part}" length)
        string(APPEND mangled "${length}${part}")
      endif()
      set(scope "${part}")
    endforeach()
    if(line MATCHES "^type ")
      string(APPEND patterns "    _ZT[ISV]N${mangled}E;\n")
    else()
      # B5cxx11 is how GCC marks a function that returns a std::string.
      string(
        APPEND patterns
        "    _ZN${mangled}E*; _ZNK${mangled}E*; _ZN${mangled}B5cxx11E*; _ZNK${mangled}B5cxx11E*;\n"
      )
    endif()
  endforeach()
  set(map "${CMAKE_CURRENT_BINARY_DIR}/${target}.map")
  file(CONFIGURE OUTPUT "${map}" CONTENT "{\n  global:\n@patterns@  local:\n    *;\n};\n" @ONLY)
  target_link_options(${target} PRIVATE "-Wl,--version-script=${map}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
endfunction()
