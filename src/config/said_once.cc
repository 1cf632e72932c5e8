#include "config/said_once.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/lines.h"

namespace innkeeper {
namespace {

// Sets the byte; returns false if it was set. A process that is killed meanwhile leaves no lock.
bool set_byte(int file, off_t at) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  while (fcntl(file, F_OFD_SETLKW, &whole) != 0) {
    if (errno != EINTR) return false;
  }
  char byte = 0;
  if (pread(file, &byte, 1, at) == 1 && byte != 0) return false;
  byte = 1;
  return pwrite(file, &byte, 1, at) == 1;
}

}  // namespace

bool is_in_run() { return std::getenv(kFirstVariable) != nullptr; }

bool may_say_once(SaidOnce what) {
  const char* const said = std::getenv(kFirstVariable);
  std::string_view text = said == nullptr ? "" : said;
  int process = 0, descriptor = 0;
  if (!read_number(cut(text, ':'), process) || !read_number(text, descriptor) || process == 0) return false;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  // The number may be reused by now: another process's file is left alone.
  char link[64];
  const ssize_t length = readlink(path.c_str(), link, sizeof link);
  if (length < 0 || std::string_view(link, static_cast<size_t>(length)) !=
                        "/memfd:" + std::string(kSaidOnceFile) + " (deleted)")
    return false;
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  const bool first = set_byte(file, static_cast<off_t>(what));
  close(file);
  return first;
}

}  // namespace innkeeper
