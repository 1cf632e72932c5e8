// Names only the device and no symbol of innkeeper: linking alone makes the device available.
#include <ATen/ATen.h>

#include <cstdio>

int main() {
  const at::Tensor x = at::ones({2}, c10::Device("managed"));
  std::printf("%s holds %g\n", x.device().str().c_str(), x.sum().item<double>());
  return 0;
}
