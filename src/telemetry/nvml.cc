#include "telemetry/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

namespace innkeeper::telemetry::nvml {

using Steady = std::chrono::steady_clock;

// Sessions are never freed: a thread may hold the address of one that was replaced meanwhile, and there are
// few. `next` keeps them all reachable.
class Session {
 public:
  Library library;
  pid_t pid = 0;
  Steady::time_point started = {};
  Steady::duration start_time = {};
  std::atomic<int> uses = 1;  // the slot's own is one; at 0 the library was, or is being, shut down
  std::atomic<bool> suspect = false;
  std::atomic<bool> gone = false;  // shut down by somebody else
  Session* next = nullptr;
};

namespace {

std::atomic<Session*> slot = nullptr;          // the process's session (or, after fork, its parent's)
std::atomic<Session*> all_sessions = nullptr;  // only ever pushed to

// A start may take seconds where the driver has to wake the cards: at most one hundredth of the time goes
// there.
constexpr int kPausePerStart = 100;
constexpr Steady::duration kLeastPause = std::chrono::milliseconds(500);

void give_back(Session* session) {
  const bool last = session->uses.fetch_sub(1) == 1;
  if (last && session->pid == getpid() && !session->gone.load()) ask(session->library.shutdown);
}

// Counts a use, unless the session has ended.
bool join(Session* session) {
  int uses = session->uses.load();
  while (uses > 0) {
    if (session->uses.compare_exchange_weak(uses, uses + 1)) return true;
  }
  return false;
}

bool wants_restart(const Session* session) {
  if (!session->suspect.load()) return false;
  return Steady::now() - session->started > std::max(kLeastPause, session->start_time * kPausePerStart);
}

void* open_library() {
  if (const char* path = std::getenv("INNKEEPER_NVML"); path != nullptr && *path != '\0') {
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  }
  // The plain name is there only with development packages; the last is where Windows puts it for Linux.
  for (const char* path : {"libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}) {
    if (void* file = dlopen(path, RTLD_LAZY | RTLD_LOCAL); file != nullptr) return file;
  }
  return nullptr;
}

std::string path_of(void* function) {
  Dl_info info = {};
  if (function == nullptr || dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code failure;
  const auto path = std::filesystem::canonical(info.dli_fname, failure);
  return failure ? std::string(info.dli_fname) : path.string();
}

// "550.54.15" of ".../libnvidia-ml.so.550.54.15", or of the kernel's line about its module.
std::string version_in(std::string_view text) {
  for (size_t start = 0; start < text.size(); ++start) {
    if (text[start] < '0' || text[start] > '9') continue;
    size_t end = text.find_first_not_of("0123456789.", start);
    if (end == std::string_view::npos) end = text.size();
    const auto word = text.substr(start, end - start);
    if (word.size() >= 5 && word.find('.') != std::string_view::npos) return std::string(word);
    start = end;
  }
  return {};
}

std::string mismatch_text(const Library& library) {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  const std::string kernel = version_in(line);
  const std::string ours = version_in(std::filesystem::path(library.path).filename().string());
  return "the NVIDIA library" + (ours.empty() ? "" : " (" + ours + ")") + " and the kernel's driver" +
         (kernel.empty() ? "" : " (" + kernel + ")") +
         " are of different versions, as after an upgrade: reboot, or unload the nvidia modules and load "
         "them again";
}

Start failed(Trouble trouble, std::string text) {
  return {.use = {}, .trouble = trouble, .text = std::move(text)};
}

Start failed_init(const Library& library, Code code) {
  switch (code) {
    case kVersionMismatch: return failed(Trouble::version_mismatch, mismatch_text(library));
    case kDriverNotLoaded:
      return failed(Trouble::not_loaded, "the NVIDIA kernel driver is not loaded: sudo modprobe nvidia");
    case kNoPermission:
      return failed(
          Trouble::no_permission,
          "no permission to open the NVIDIA driver: check the rights of /dev/nvidia* and this user's groups");
    case kLibraryNotFound:
      return failed(Trouble::not_loaded,
                    describe(library, "nvmlInit_v2", code) + ": reinstall the NVIDIA driver");
    default:
      return failed(Trouble::other,
                    describe(library, "nvmlInit_v2", code) + ": see dmesg for lines with NVRM");
  }
}

// Loads and starts the library; on success a session with one use, in no slot yet.
Start start(std::unique_ptr<Session>& session) {
  // Never closed: the library has threads and handlers of its own, and one start more finds it loaded.
  void* file = open_library();
  if (file == nullptr) {
    const char* reason = dlerror();
    return failed(
        Trouble::no_library,
        std::string("NVML cannot be loaded: no NVIDIA driver here, or a container without it (docker run "
                    "--gpus all); ") +
            (reason == nullptr ? "" : clean_text(reason, 300)));
  }
  session = std::make_unique<Session>();
  Library& library = session->library;
#define IK_NVML_FIND(member, name, type) \
  library.member = reinterpret_cast<decltype(library.member)>(dlsym(file, name));
  IK_NVML_FUNCTIONS(IK_NVML_FIND)
#undef IK_NVML_FIND
  library.path = path_of(reinterpret_cast<void*>(library.init));
  if (library.init == nullptr || library.shutdown == nullptr || library.count == nullptr ||
      library.handle == nullptr || library.uuid == nullptr) {
    return failed(Trouble::bad_library,
                  "what was loaded as NVML is not NVML: it lacks nvmlInit_v2 or a like function");
  }
  session->pid = getpid();
  const auto before = Steady::now();
  if (const Code code = ask(library.init); code != kSuccess) return failed_init(library, code);
  session->started = Steady::now();
  session->start_time = session->started - before;
  return {};
}

void remember(Session* session) {
  session->next = all_sessions.load();
  while (!all_sessions.compare_exchange_weak(session->next, session)) {
  }
}

}  // namespace

Use::~Use() {
  if (session_ != nullptr) give_back(session_);
}
const Library& Use::library() const { return session_->library; }
void Use::suspect() const { session_->suspect.store(true); }
void Use::gone() const { session_->gone.store(true); }

Outcome outcome_of(Code code) {
  switch (code) {
    case kNotSupported:
    case kFunctionNotFound:
    case kArgumentVersionMismatch:
    case kDeprecated: return Outcome::not_supported;
    case kUninitialized:
    case kDriverNotLoaded:
    case kLibraryNotFound:
    case kVersionMismatch: return Outcome::no_driver;
    default: return Outcome::error;
  }
}

std::string describe(const Library& library, const char* question, Code code) {
  const char* words = library.error_string == nullptr ? nullptr : library.error_string(code);
  std::string text = std::string(question) + ": ";
  if (words != nullptr) text += clean_text(words, 200) + " ";
  return text + "(" + std::to_string(code) + ")";
}

std::string clean_text(const char* text, size_t capacity) {
  std::string result(text, strnlen(text, capacity));
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return result;
}

Start start_or_join(bool afresh) {
  for (;;) {
    Session* present = slot.load();
    const bool ours = present != nullptr && present->pid == getpid();
    if (ours && !afresh && !wants_restart(present) && join(present))
      return {.use = Use(present), .trouble = Trouble::none, .text = {}};
    std::unique_ptr<Session> fresh;
    Start result = start(fresh);
    if (result.trouble != Trouble::none) return result;
    fresh->uses = 2;  // the slot's and the caller's
    if (!slot.compare_exchange_strong(present, fresh.get())) {
      ask(fresh->library.shutdown);  // another thread was faster: use its session
      afresh = false;
      continue;
    }
    if (ours) give_back(present);
    Session* session = fresh.release();
    remember(session);
    return {.use = Use(session), .trouble = Trouble::none, .text = {}};
  }
}

void end_session() {
  Session* session = slot.exchange(nullptr);
  if (session != nullptr && session->pid == getpid()) give_back(session);
}

}  // namespace innkeeper::telemetry::nvml
