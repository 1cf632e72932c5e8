// Messages that one run prints once among its processes.
#include "config/said_once.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace innkeeper {
namespace {

// Runs in a process of its own, which has its own variable and file.
int in_child(int (*work)()) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void begin() {
  const int file = memfd_create(kSaidOnceFile, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  setenv(kFirstVariable, (std::to_string(getpid()) + ":" + std::to_string(file)).c_str(), 1);
}

TEST(SaidOnce, ByOneOfManyProcesses) {
  EXPECT_EQ(in_child([] {
              begin();
              constexpr int kProcesses = 20;
              std::vector<pid_t> children;
              for (int i = 0; i < kProcesses; ++i) {
                children.push_back(fork());
                if (children.back() == 0) _exit(may_say_once(SaidOnce::no_gpu) ? 1 : 0);
              }
              int said = 0;
              for (const pid_t child : children) {
                int status = 0;
                waitpid(child, &status, 0);
                said += WEXITSTATUS(status);
              }
              return said + (may_say_once(SaidOnce::no_gpu) ? 100 : 0);
            }),
            1);
}

TEST(SaidOnce, EachThingByItself) {
  EXPECT_EQ(in_child([] {
              begin();
              if (!may_say_once(SaidOnce::hidden_devices) || !may_say_once(SaidOnce::no_gpu)) return 1;
              if (!may_say_once(SaidOnce::settings)) return 2;
              return may_say_once(SaidOnce::hidden_devices) || may_say_once(SaidOnce::settings) ? 3 : 0;
            }),
            0);
}

TEST(SaidOnce, NeitherByWhatIsLeftNorInAnothersFile) {
  EXPECT_EQ(in_child([] {
              begin();
              close(std::atoi(std::strchr(std::getenv(kFirstVariable), ':') + 1));
              if (may_say_once(SaidOnce::no_gpu)) return 1;
              const int other = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
              setenv(kFirstVariable, (std::to_string(getpid()) + ":" + std::to_string(other)).c_str(), 1);
              if (may_say_once(SaidOnce::no_gpu)) return 2;
              char byte = 0;
              return pread(other, &byte, 1, 0) == 0 ? 0 : 3;
            }),
            0);
}

TEST(SaidOnce, NothingWithoutAFirstProcess) {
  EXPECT_EQ(in_child([] {
              const std::string standard_output = std::to_string(getpid()) + ":1";
              for (const char* said : {"", "12", "x:1", "1:", ":", "1:-1", "0:1", "-1:1", "1:1x",
                                       "99999999:3", standard_output.c_str()}) {
                setenv(kFirstVariable, said, 1);
                if (may_say_once(SaidOnce::no_gpu)) return 1;
              }
              unsetenv(kFirstVariable);
              return may_say_once(SaidOnce::no_gpu) ? 2 : 0;
            }),
            0);
}

}  // namespace
}  // namespace innkeeper
