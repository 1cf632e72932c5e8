// Answers of NVML through the real loader and the fake library (tests/fake_nvml). The bytes become its
// script, a machine with GPUs in any state, and then its answers, of which some are theirs instead of the
// machine's. AMD SMI gets the same, with one machine.
//
// For any answers a snapshot keeps its promises, and leasing gets no lost GPU and no byte that is not free.
// Where no answer is wrong every good GPU is there with its numbers, in any company.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "base/check.h"
#include "fuzz/input.h"
#include "lease/choose.h"
#include "lease/from_snapshot.h"
#include "support/fake_gpus.h"
#include "support/sane_snapshot.h"

namespace {

using namespace innkeeper;
using fuzz::Input;
using telemetry::Snapshot;
using telemetry::Wanted;

constexpr const char* kFunctions[] = {"nvmlInit_v2",
                                      "nvmlSystemGetDriverVersion",
                                      "nvmlDeviceGetCount_v2",
                                      "nvmlDeviceGetHandleByIndex_v2",
                                      "nvmlDeviceGetUUID",
                                      "nvmlDeviceGetName",
                                      "nvmlDeviceGetPciInfo_v3",
                                      "nvmlDeviceGetPciInfo_v2",
                                      "nvmlDeviceGetMemoryInfo_v2",
                                      "nvmlDeviceGetMemoryInfo",
                                      "nvmlDeviceGetUtilizationRates",
                                      "nvmlDeviceGetPowerUsage",
                                      "nvmlDeviceGetTemperature",
                                      "nvmlDeviceGetClockInfo",
                                      "nvmlDeviceGetComputeRunningProcesses_v3",
                                      "nvmlDeviceGetComputeRunningProcesses_v2",
                                      "nvmlDeviceGetComputeRunningProcesses",
                                      "nvmlDeviceGetGraphicsRunningProcesses_v3",
                                      "nvmlDeviceGetMigMode",
                                      "nvmlDeviceGetMaxMigDeviceCount",
                                      "nvmlDeviceGetMigDeviceHandleByIndex",
                                      "nvmlDeviceGetGpuInstanceId",
                                      "nvmlDeviceGetTopologyCommonAncestor",
                                      "nvmlDeviceGetNvLinkState"};
constexpr const char* kDrivers[] = {"550.54.15", "535.54.03", "535.86.05",     "470.1",
                                    "x",         "535",       "999999999999.1"};
constexpr const char* kBadUuids[] = {"GPU-", "gpu-aaaaaaaa", "GPU-a,aaaaaa", "GPU-\x01zzzzz", "nonsense"};

// A GPU as the script has it.
struct Made {
  std::string uuid;
  bool good = false;  // The GPU has no fault, so a snapshot must have it.
  bool gone = false;  // The GPU is lost, so a snapshot must not have it.
  std::optional<Bytes> free;
};

class Script {
 public:
  explicit Script(Input& input) : input_(input) {
    line("driver " + std::string(input.one_of(kDrivers)));
    if (input.byte() > 240) error(), odd_ = true;
    for (size_t count = input.upto(4); count > 0; --count) gpu();
    for (size_t count = input.upto(3); count > 0; --count) {
      const size_t a = input.upto(4), b = input.upto(4);
      line("topology " + std::to_string(a) + " " + std::to_string(b) + " " + std::to_string(input.byte()));
    }
  }

  const std::string& text() const { return text_; }
  const std::vector<Made>& gpus() const { return gpus_; }
  bool odd() const { return odd_; }  // The library as a whole fails at some call.

 private:
  void line(const std::string& statement) { text_ += statement + "\n"; }
  struct Error {
    std::string function;
    bool lost;  // The code reports a lost GPU.
  };
  Error error() {
    Error made{input_.one_of(kFunctions), false};
    const int code = input_.byte() % 40;
    made.lost = code == 15 || code == 28;
    line("error " + made.function + " " + std::to_string(code));
    return made;
  }
  // An error of a GPU. True: the error reports the GPU as lost, at a call that is made for each GPU.
  bool gpu_error() {
    static const std::set<std::string> kAlways = {"nvmlDeviceGetName", "nvmlDeviceGetUtilizationRates",
                                                  "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature"};
    const Error made = error();
    return made.lost && kAlways.contains(made.function);
  }
  uint64_t bytes() {
    static constexpr uint64_t kNumbers[] = {0,          1,          1ULL << 30, 80ULL << 30, 140ULL << 30,
                                            1ULL << 56, 1ULL << 57, INT64_MAX,  ~0ULL,       ~0ULL - 1};
    const uint8_t kind = input_.byte();
    return kind < 200 ? kNumbers[kind % std::size(kNumbers)] : input_.number<uint64_t>();
  }
  // The value fits as milliwatts.
  std::string watts() { return std::to_string(input_.number<uint32_t>() % 4'000'000); }
  std::string number() { return std::to_string(input_.number<uint32_t>()); }

  // Returns the free bytes if the three numbers are consistent.
  std::optional<Bytes> memory() {
    const uint64_t total = bytes(), reserved = bytes(), used = bytes();
    line("memory " + std::to_string(total) + " " + std::to_string(reserved) + " " + std::to_string(used));
    if (total == 0 || total > 1ULL << 56 || reserved > total || used > total - reserved) return std::nullopt;
    return Bytes(static_cast<int64_t>(total - reserved - used));
  }
  void process() {
    const bool unknown = input_.byte() > 200;
    line("process " + number() + " " + (unknown ? "unknown" : std::to_string(bytes())) +
         (input_.byte() > 200 ? " graphics" : ""));
  }

  void gpu() {
    const uint8_t kind = input_.byte();
    Made made;
    made.uuid = "GPU-" + std::string(8, static_cast<char>('a' + gpus_.size()));
    made.good = true;
    if (kind % 16 == 14 && !gpus_.empty()) made = {gpus_[0].uuid, false, false, std::nullopt};
    if (kind % 16 == 15) made = {input_.one_of(kBadUuids), false, false, std::nullopt};
    line("gpu " + made.uuid);
    line("name NVIDIA H200");
    if (kind < 220) line("bus 00000000:0" + std::to_string(input_.byte() % 10) + ":00.0");
    if (kind / 16 % 4 == 1) {
      line("lost");
      made.good = false;
      made.gone = true;
    }
    if (const uint8_t parts = input_.byte(); parts > 0) {
      if ((parts & 1) != 0) made.free = memory();
      if ((parts & 2) != 0) line("utilization " + number() + " " + number());
      if ((parts & 4) != 0) line("power " + watts() + " " + watts());
      if ((parts & 8) != 0) line("temperature " + number());
      if ((parts & 16) != 0) process(), process();
      if ((parts & 32) != 0)
        line("nvlink " + std::to_string(input_.upto(4)) + " " + std::to_string(input_.upto(40)));
      if ((parts & 64) != 0) line("clocks " + number() + " " + number());
      if ((parts & 128) != 0) {
        made.good = false;
        made.gone = gpu_error() || made.gone;
      }
    }
    if (kind / 64 == 1) {
      line("mig " + std::to_string(input_.byte()));
      made.free.reset();
      for (size_t count = input_.upto(3); count > 0; --count)
        if (!instance(count)) made.good = false;
    }
    // Of two with one name only the first is a GPU, if it is one: then the name says nothing.
    for (Made& other : gpus_)
      if (other.uuid == made.uuid) other.good = other.gone = made.gone = false;
    gpus_.push_back(std::move(made));
  }
  // False: it may say that its GPU is lost, which then is not there.
  bool instance(size_t number_of) {
    const uint8_t kind = input_.byte();
    line("instance MIG-" + std::string(8, static_cast<char>('0' + number_of + 10 * (kind > 240))) + " " +
         std::to_string(kind % 8) + " " + std::to_string(kind / 8 % 2));
    if (kind < 200) (void)memory();
    if (kind % 3 == 0) process();
    return kind <= 220 || !error().lost;
  }

  Input& input_;
  std::string text_;
  std::vector<Made> gpus_;
  bool odd_ = false;
};

constexpr const char* kAmdMachine =
    "topology 0 1 1\n"
    "gpu a\n  bus 0000:01:00.0\n  name AMD Instinct MI300X\n  memory 8G 0 1G\n  utilization 1 1\n"
    "  power 100 700\n  temperature 40\n  clocks 1000 2000\n  process 5 1G\n  process 6 1G\n  node 1\n"
    "gpu b\n  bus 0000:02:00.0\n  memory 8G 0 1G\n  lost\ngpu c\n  bus 0000:03:00.0\n  memory 8G 0 1G\n  "
    "node 2\n";

// The fake library of one kind at a time: it is loaded again only when the kind changes.
void show(size_t kind, const std::string& script) {
  static size_t shown = 99;
  static std::unique_ptr<test::FakeLibrary> library;
  if (kind != shown) {
    const auto age = kind % 2 == 0 ? test::FakeLibrary::quiet : test::FakeLibrary::quiet_old;
    library.reset();
    if (kind < 2)
      library = std::make_unique<test::FakeGpus>(script, age);
    else
      library = std::make_unique<test::FakeAmdGpus>(script, age);
    shown = kind;
  } else {
    library->change(script);
  }
}

void check_leasing(const Snapshot& now) {
  const lease::Machine machine = lease::from_snapshot(now);
  IK_CHECK(machine.links.empty() || machine.links.size() == machine.gpus.size() * machine.gpus.size());
  for (const lease::Gpu& gpu : machine.gpus) {
    IK_CHECK(now.find(gpu.uuid) != nullptr, gpu.uuid + " is leased and not there");
    IK_CHECK(gpu.total >= Bytes(0) && gpu.reserved >= Bytes(0) && gpu.capacity() >= Bytes(0));
    IK_CHECK(!gpu.free || (*gpu.free >= Bytes(0) && *gpu.free <= gpu.capacity()), "more free than there is");
    for (const lease::Process& process : gpu.processes) IK_CHECK(process.used >= Bytes(0));
  }
  const lease::Ledger ledger = lease::make_ledger(machine, {}, {});
  for (const bool exclusive : {false, true})
    for (const Bytes memory : {Bytes(1), GiB(8), Bytes(int64_t{1} << 55)}) {
      const lease::Wish wish{1, memory, exclusive, MiB(512)};
      const auto order = lease::scores(machine, ledger, lease::By::free, {});
      const auto chosen = lease::choose(machine, ledger, wish, order);
      if (!chosen) continue;
      const lease::Gpu& gpu = machine.gpus[(*chosen)[0]];
      IK_CHECK(gpu.free.value_or(Bytes(0)) >= memory, "granted what is not free, or not known to be there");
    }
}

void check_good_gpus(const Script& script, const Snapshot& now) {
  IK_CHECK(now.driver.ok(), now.driver.text());
  for (const Made& made : script.gpus()) {
    const auto there = std::find_if(now.gpus.begin(), now.gpus.end(),
                                    [&](const telemetry::Gpu& gpu) { return gpu.uuid == made.uuid; });
    IK_CHECK(!made.gone || there == now.gpus.end(), "a lost GPU is not lost: " + made.uuid);
    if (!made.good) continue;
    IK_CHECK(there != now.gpus.end(), "a good GPU is missing: " + made.uuid);
    if (!made.free) continue;
    IK_CHECK(there->memory.ok() && there->memory->free == *made.free, "the wrong number of free bytes");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint8_t first = input.byte();
  const size_t kind = first % 4;
  const bool amd = kind >= 2;
  const Script script(input);
  std::string text = amd ? kAmdMachine : script.text();
  if (kind == 3) text += "library 24 5 0 0\n";
  std::string answers;
  for (const char c : input.rest()) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    answers += digits;
  }
  if (!answers.empty())
    text = "garbage 0 " + std::to_string(first / 4) + "\nanswers " + answers + "\n" + text;
  show(kind, text);
  const Snapshot now = telemetry::snapshot(Wanted::all);
  const std::string wrong = test::wrong_in(now);
  IK_CHECK(wrong.empty(), wrong + "\n" + text);
  check_leasing(now);
  if (answers.empty() && !amd && !script.odd()) check_good_gpus(script, now);
  // Restarted each time: starting answers too. And at the process's end nothing is left to be stopped in a
  // library whose own objects are gone.
  telemetry::shut_down();
  return 0;
}
