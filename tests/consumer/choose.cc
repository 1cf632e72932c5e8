#include <innkeeper/torch/choice.h>

#include <cstdio>
#include <exception>

int main() {
  try {
    const innkeeper::Choice gpu = innkeeper::auto_choice({.memory = int64_t{8} << 30});
    std::printf("%s is %s\n", innkeeper::device(gpu).str().c_str(), gpu.uuids().front().c_str());
  } catch (const innkeeper::LeaseBusy& busy) {
    std::printf("later: %s\n", busy.what());
  } catch (const std::exception& error) {  // no GPU is here, say
    std::printf("not here: %s\n", error.what());
  }
  return 0;
}
