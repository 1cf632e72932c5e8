// Lists of visible devices against machines made by hand. The first byte chooses the machine, then come
// lines: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES; a missing one is
// not set.
//
// The fuzzer compares NVIDIA's list with a naive reading of the grammar, by strtol and plain searching. Every
// answer is within the machine and names no device twice; written as a list of UUIDs, it gives the same
// answer again.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "base/check.h"
#include "fuzz/input.h"
#include "support/gpus.h"
#include "telemetry/visible.h"

namespace {

using namespace innkeeper;
using namespace innkeeper::telemetry;
using test::gpu;
using test::instance;
using Uuids = std::vector<std::string>;

struct Machine {
  Snapshot now;
  // Device of each CUDA index: a UUID, "lost", or "" for a GPU in MIG mode without an instance.
  Uuids places;
  bool one_model = true;
};

Gpu amd(std::string uuid, const char* bus, int node) {
  Gpu made = gpu(std::move(uuid), bus);
  made.vendor = Vendor::amd;
  made.name = "AMD Instinct MI300X";
  made.kfd_node = node;
  return made;
}

LostGpu lost(const char* bus, int index, Vendor vendor = Vendor::nvidia, bool forbidden = false) {
  LostGpu made;
  made.bus_id = std::string("00000000:") + bus + ":00.0";
  made.driver_index = index;
  made.vendor = vendor;
  made.forbidden = forbidden;
  return made;
}

std::vector<Machine> make_machines() {
  std::vector<Machine> all(8);
  all[0].now.gpus = {gpu("GPU-aa11-0", "01"), gpu("GPU-aa22-1", "02"), gpu("GPU-bb33-2", "03"),
                     gpu("GPU-cc44-3", "04")};
  all[0].places = {"GPU-aa11-0", "GPU-aa22-1", "GPU-bb33-2", "GPU-cc44-3"};
  all[1].now.gpus = {
      gpu("GPU-aa11-0", "01",
          {instance("MIG-5555", 1, 0), instance("MIG-6666", 2, 0), instance("MIG-6777", 2, 1)}),
      gpu("GPU-bb22-1", "02")};
  all[1].places = {"MIG-5555", "GPU-bb22-1"};
  all[1].one_model = false;  // CUDA's order of a GPU with MIG on and one without is its own
  all[2] = all[0];
  all[2].now.gpus[2].name = "NVIDIA T4";
  all[2].one_model = false;
  all[3].now.gpus = {gpu("GPU-aa11-0", "01"), gpu("GPU-bb33-2", "03")};
  all[3].now.lost = {lost("02", 1), lost("04", 3), lost("05", 4, Vendor::nvidia, true)};
  all[3].places = {"GPU-aa11-0", "lost", "GPU-bb33-2", "lost"};
  all[4].now.gpus = {amd("GPU-00000000000000aa", "01", 3), amd("GPU-00000000000000ab", "02", 1),
                     amd("GPU-11000000000000ac", "03", 2)};
  all[5] = all[0];
  for (const Gpu& one : all[4].now.gpus) all[5].now.gpus.push_back(one);
  all[5].now.lost = {lost("09", 3, Vendor::amd)};
  // Older drivers name instances by their place; and some names are prefixes of others.
  all[6].now.gpus = {
      gpu("GPU-aa11", "01", {instance("MIG-GPU-aa11/1/1", 1, 1), instance("MIG-GPU-aa11/1/10", 1, 10)}),
      gpu("GPU-aa11-0", "02", {instance("MIG-9999", 0, 0)})};
  all[6].places = {"MIG-GPU-aa11/1/1", "MIG-9999"};
  return all;  // The last list is empty.
}

std::string trim(const std::string& text) {
  const char* const spaces = " \t\n\v\f\r";
  const size_t first = text.find_first_not_of(spaces);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

bool begins(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

// UUID that an entry of a list of UUIDs names, or "".
std::string named(const std::string& text, const Machine& machine) {
  Uuids found;
  for (const Gpu& one : machine.now.gpus) {
    if (one.vendor != Vendor::nvidia) continue;
    for (const Instance& part : one.instances) {
      const std::string place = "MIG-" + one.uuid + "/" + std::to_string(part.gpu_instance) + "/" +
                                std::to_string(part.compute_instance);
      if (part.uuid == text || place == text) return part.uuid;
    }
    if (one.uuid == text) return one.mig ? one.instances.front().uuid : one.uuid;
  }
  if (text.size() <= 4 || text.find('/') != std::string::npos) return "";
  for (const Gpu& one : machine.now.gpus) {
    if (one.vendor != Vendor::nvidia) continue;
    if (begins(one.uuid, text)) found.push_back(one.mig ? one.instances.front().uuid : one.uuid);
    for (const Instance& part : one.instances)
      if (begins(part.uuid, text)) found.push_back(part.uuid);
  }
  return found.size() == 1 ? found[0] : "";
}

// Device of the entry with this index: a UUID, "lost", or "" for none.
std::string indexed(const std::string& text, const Machine& machine) {
  char* end = nullptr;
  const long index = std::strtol(text.c_str(), &end, 10);
  const bool number = end != text.c_str() && text[0] != '-';
  const bool here = number && index >= 0 && static_cast<size_t>(index) < machine.places.size();
  return here ? machine.places[static_cast<size_t>(index)] : "";
}

Uuids naive(const std::string& list, bool order_known, const Machine& machine) {
  Uuids result;
  const Uuids entries = fuzz::parts_of(list, ',');
  const std::string first = trim(entries[0]);
  const bool indices = !begins(first, "GPU-") && !begins(first, "MIG-");
  if (indices && !order_known) return {};
  for (const std::string& entry : entries) {
    const std::string text = trim(entry);
    const std::string uuid = indices ? indexed(text, machine) : named(text, machine);
    if (uuid.empty()) return result;
    if (uuid == "lost") continue;
    if (std::find(result.begin(), result.end(), uuid) != result.end()) return {};
    result.push_back(uuid);
  }
  return result;
}

std::string joined(const Uuids& uuids) {
  std::string list;
  for (const std::string& uuid : uuids) list += (list.empty() ? "" : ",") + uuid;
  return list;
}

bool inside(const Uuids& part, const Uuids& all) {
  return std::all_of(part.begin(), part.end(), [&](const std::string& uuid) {
    return std::find(all.begin(), all.end(), uuid) != all.end();
  });
}

// Properties of every answer; `all` is the answer without a list.
void check_visible(const Visible& visible, const Visible& all, const Snapshot& now) {
  IK_CHECK(inside(visible.uuids, all.uuids), "wider than what there is: " + joined(visible.uuids));
  IK_CHECK(std::set<std::string>(visible.uuids.begin(), visible.uuids.end()).size() == visible.uuids.size(),
           "one device twice: " + joined(visible.uuids));
  for (const std::string& uuid : visible.uuids) {
    const Gpu* owner = now.find(uuid);
    IK_CHECK(owner != nullptr && owner->mig == (now.find_instance(uuid) != nullptr), uuid);
  }
  IK_CHECK(!visible.unclear || visible.uuids.empty(), "unclear, and still a choice");
  IK_CHECK(fuzz::is_one_line(visible.note), visible.note);
}

using Line = std::optional<std::string>;
std::optional<std::string_view> view(const Line& line) { return line; }

void check_nvidia(const Machine& machine, const Line& list, const std::string& order) {
  const Visible all = resolve_visible(std::nullopt, order, machine.now);
  check_visible(all, all, machine.now);
  if (!list) return;
  const Visible visible = resolve_visible(view(list), order, machine.now);
  check_visible(visible, all, machine.now);
  IK_CHECK(visible.restricted);
  const bool order_known = machine.one_model || trim(order) == "PCI_BUS_ID";
  const Uuids expected = naive(*list, order_known, machine);
  IK_CHECK(visible.uuids == expected, joined(visible.uuids) + " instead of " + joined(expected));
  const Visible again = resolve_visible(joined(visible.uuids), "", machine.now);
  IK_CHECK(again.uuids == visible.uuids && again.note.empty(),
           "what it gave is read as " + joined(again.uuids));
}

void check_amd(const Machine& machine, const AmdLists& lists) {
  const Visible all = resolve_visible_amd({}, machine.now);
  const Visible visible = resolve_visible_amd(lists, machine.now);
  check_visible(visible, all, machine.now);
  const Visible left = resolve_visible_amd({lists.rocr, std::nullopt, std::nullopt}, machine.now);
  IK_CHECK(inside(visible.uuids, left.uuids), "HIP's list is wider than what ROCR's left");
  const std::string list = joined(visible.uuids);
  IK_CHECK(resolve_visible_amd({list, std::nullopt, std::nullopt}, machine.now).uuids == visible.uuids, list);
  IK_CHECK(resolve_visible_amd({std::nullopt, list, std::nullopt}, machine.now).uuids == visible.uuids, list);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Machine> machines = make_machines();
  fuzz::Input input(data, size);
  const Machine& machine = input.one_of(machines);
  // A variable ends with its first NUL.
  const std::string text(input.rest().substr(0, input.rest().find('\0')));
  std::vector<Line> lines;
  for (std::string& line : fuzz::parts_of(text, '\n')) lines.emplace_back(std::move(line));
  lines.resize(4);
  check_nvidia(machine, lines[0], lines[1].value_or(""));
  check_amd(machine, {view(lines[2]), view(lines[3]), view(lines[0])});
  return 0;
}
