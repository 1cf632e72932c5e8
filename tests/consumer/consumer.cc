// Fits a line by gradient descent on the managed device, with every verb of innkeeper.h once.
#include <ATen/ATen.h>
#include <innkeeper/innkeeper.h>
#include <innkeeper/version.h>

#include <cstdio>

static_assert(INNKEEPER_VERSION_MAJOR == 0 && INNKEEPER_VERSION_MINOR >= 1);

namespace {

at::Tensor fit(c10::Device device) {
  const at::Tensor x = at::arange(4096, at::kFloat).reshape({64, 64}).div(4096).to(device);
  const at::Tensor target = x.mul(3).add(1);
  at::Tensor slope = at::zeros({}, x.options());
  at::Tensor offset = at::zeros({}, x.options());
  for (int step = 0; step < 50; ++step) {
    const at::Tensor error = x.mul(slope).add(offset).sub(target);
    slope.sub_(error.mul(x).mean());
    offset.sub_(error.mean());
  }
  return at::stack({slope, offset}).cpu();
}

}  // namespace

int main() {
  innkeeper::configure("sim:2x64KiB,host:1GiB");
  const bool equal = at::equal(fit(innkeeper::device()), fit(at::kCPU));
  const innkeeper::Stats stats = innkeeper::stats();
  std::printf("equal %d evictions %d nodes %zu\n", equal, stats.evictions > 0, innkeeper::nodes().size());

  const innkeeper::Experiment experiment("one", 1024);
  const innkeeper::On on("sim:1");
  at::Tensor x = at::ones({16}, innkeeper::device());
  std::printf("born %s\n", innkeeper::where(x).front().c_str());
  innkeeper::pin(x, "sim:0");
  innkeeper::unpin(x);
  innkeeper::evict(x);
  std::printf("evicted %s\n", innkeeper::where(x).front().c_str());
  {
    const innkeeper::Resident real(x, "host", /*write=*/true);
    real->fill_(2);
    std::printf("real %s\n", real->device().str().c_str());
  }
  std::printf("sum %g\n", x.sum().item<double>());
  try {
    innkeeper::pin(x, "sim:7");
  } catch (const c10::Error& error) {
    std::printf("refused: %s\n", error.what_without_backtrace());
  }
  return 0;
}
