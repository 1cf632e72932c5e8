#include "config/said_once.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/lines.h"

namespace innkeeper {

bool may_say_once() {
  const char* const said = std::getenv(kFirstVariable);
  std::string_view text = said == nullptr ? "" : said;
  int process = 0, descriptor = 0;
  if (!read_number(cut(text, ':'), process) || !read_number(text, descriptor) || process == 0) return false;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  // By now the number may be another process's: its file is left alone.
  char link[64];
  const ssize_t length = readlink(path.c_str(), link, sizeof link);
  if (length < 0 || std::string_view(link, static_cast<size_t>(length)) !=
                        "/memfd:" + std::string(kSaidOnceFile) + " (deleted)")
    return false;
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  const bool first = fcntl(file, F_ADD_SEALS, F_SEAL_SEAL) == 0;
  close(file);
  return first;
}

}  // namespace innkeeper
