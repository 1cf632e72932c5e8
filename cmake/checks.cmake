# What a build is refused for at once, in one line, rather than by an error of its hundredth file.

# The compiler: what each source uses of C++20.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_FLAGS "-std=c++20")
check_cxx_source_compiles(
  "#include <compare>
   #include <span>
   #include <vector>
   static constinit int answer = 1;
   struct Pair { int first = 0, second = 0; auto operator<=>(const Pair&) const = default; };
   int main() {
     std::vector<int> numbers = {answer};
     const Pair pair{.first = static_cast<int>(std::span(numbers).size())};
     return static_cast<int>(std::erase(numbers, 1)) - (pair > Pair{} ? 1 : 0);
   }"
  INNKEEPER_COMPILER_HAS_CXX20
)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT INNKEEPER_COMPILER_HAS_CXX20)
  unset(INNKEEPER_COMPILER_HAS_CXX20 CACHE) # so that another one is tried anew
  message(
    FATAL_ERROR
    "innkeeper needs a C++20 compiler, as GCC 12 or Clang 14 and newer; ${CMAKE_CXX_COMPILER} is "
    "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. Install one, or "
    "name another by CXX:\n  Debian, Ubuntu: apt install g++-12\n  Fedora: dnf install gcc-c++\n"
    "  conda: conda install -c conda-forge gxx"
  )
endif()

# The options: CMake takes a word that it does not know for OFF.
foreach(
  option
  TESTS
  BENCH
  FUZZ
  FAKE_CUDA
  WERROR
  CLI
  CUDA
  FETCH
  TORCH
)
  string(TOUPPER "${INNKEEPER_${option}}" value)
  if(option STREQUAL "TORCH" AND value STREQUAL "AUTO")
    continue()
  endif()
  if(NOT value MATCHES "^(ON|OFF|YES|NO|TRUE|FALSE|Y|N|1|0)$")
    set(also "")
    if(option STREQUAL "TORCH")
      set(also ", or AUTO")
    endif()
    message(FATAL_ERROR "INNKEEPER_${option}=${INNKEEPER_${option}}: expected ON or OFF${also}")
  endif()
endforeach()
