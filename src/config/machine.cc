#include "config/machine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>

#include "base/edit_distance.h"
#include "base/size.h"
#include "config/accelerator_kinds.h"
#include "config/text.h"
#include "device/host.h"

namespace innkeeper {
namespace {

Status refuse(const std::string& what) { return Status(Code::invalid_argument, "INNKEEPER_NODES: " + what); }

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

constexpr std::string_view kSimulatedUuid = "GPU-51300000-0000-4000-8000-";

// Half of a process's address space. Each node may take all of it: only the bytes in use take any.
constexpr Bytes kMostAddresses = GiB(64 << 10);

// Parses a whole number from 0 on that fits; none if `text` is anything else.
std::optional<int> parse_index(std::string_view text) {
  int number = 0;
  if (!all_digits(text)) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<int> index_from_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::nullopt : parse_index(text);
}

// The words with which nodes begin.
std::vector<std::string_view> first_words() {
  std::vector<std::string_view> words = {"auto", "host", "disk"};
  for (const AcceleratorKind& kind : kAcceleratorKinds) words.push_back(kind.name);
  return words;
}

// Returns `item` with commas if it contains several nodes with a wrong separator between them; else empty.
std::string with_commas(std::string_view item) {
  // A directory's name may have spaces.
  const std::string_view between = item.starts_with("disk") ? ";" : "; \t\r\n|+&";
  const std::vector<std::string_view> words = first_words();
  const auto begins_item = [&words](std::string_view text) {
    return std::ranges::any_of(words, [&](std::string_view word) { return text.starts_with(word); });
  };
  std::string result;
  size_t taken = 0;
  for (size_t at = item.find_first_of(between); at != std::string_view::npos;
       at = item.find_first_of(between, at)) {
    const size_t next = std::min(item.find_first_not_of(between, at), item.size());
    if (begins_item(item.substr(next))) {
      result.append(item.substr(taken, at - taken)).append(",");
      taken = next;
    }
    at = next;
  }
  return taken == 0 ? "" : result.append(item.substr(taken));
}

// Returns a hint if `word` is the first word of a node but for one letter; else empty.
std::string nearest_word(std::string_view word) {
  for (const std::string_view each : first_words()) {
    if (edit_distance(word, each) == 1) return " (the nearest is " + std::string(each) + ")";
  }
  return "";
}

class Parser {
 public:
  Parser(sim::Options sim, Bytes host_memory, LocalShare share)
      : sim_(std::move(sim)), host_memory_(host_memory) {
    spec_.data = sim_.data;
    spec_.share = share;
  }

  Result<MachineSpec> parse(std::string_view text) {
    std::vector<std::string_view> items = split_items(text);
    if (items.empty()) items.push_back("auto");
    for (std::string_view item : items) {
      const Status parsed = parse_item(item);
      if (parsed.ok()) continue;
      if (const std::string meant = with_commas(item); !meant.empty())
        return refuse(in_quotes(item) + ": commas separate nodes, as in " + in_quotes(meant));
      return parsed;
    }
    IK_RETURN_IF_ERROR(check_together());
    if (!has(NodeKind::host)) add({.kind = NodeKind::host, .name = "host", .budget = default_host_budget()});
    for (NodeSpec& node : spec_.nodes) {
      if (node.kind == NodeKind::host && !node.budget) node.budget = default_host_budget();
    }
    std::stable_sort(spec_.nodes.begin(), spec_.nodes.end(),
                     [](const NodeSpec& a, const NodeSpec& b) { return tier(a.kind) < tier(b.kind); });
    return std::move(spec_);
  }

 private:
  static int tier(NodeKind kind) { return kind == NodeKind::disk ? 2 : kind == NodeKind::host ? 1 : 0; }

  bool has(NodeKind kind) const {
    return std::ranges::any_of(spec_.nodes, [&](const NodeSpec& node) { return node.kind == kind; });
  }
  int count_of(const AcceleratorKind& kind) const {
    return static_cast<int>(std::ranges::count(spec_.nodes, kind.name, &NodeSpec::accelerator));
  }
  void add(NodeSpec node) { spec_.nodes.push_back(std::move(node)); }

  // Returns this process's share minus the simulated nodes, less a fifth for the program itself and
  // for side buffers.
  Bytes default_host_budget() const {
    const int64_t left = host_memory_.count() / spec_.share.count - (spec_.data ? simulated_ : 0);
    return round_up(Bytes(std::max<int64_t>(left / 5 * 4, kAlignment)));
  }

  Status parse_item(std::string_view item) {
    const size_t colon = item.find(':');
    const std::string_view word = item.substr(0, colon);
    const bool bare = colon == std::string_view::npos;
    const std::string_view rest = bare ? "" : item.substr(colon + 1);
    if (word == "auto") return parse_auto(item, bare, rest);
    if (word == "host") return parse_host(item, bare, rest);
    if (word == "disk") return parse_disk(item, rest);
    for (const AcceleratorKind& kind : kAcceleratorKinds) {
      if (word != kind.name) continue;
      return kind.simulated ? parse_simulated(item, kind, rest) : parse_visible(item, kind, bare, rest);
    }
    const std::string hint =
        parse_index(item) ? " (each GPU is an item of its own: cuda:0,cuda:1)" : nearest_word(word);
    return refuse(in_quotes(item) + " is no node" + hint +
                  "; expected auto, cuda, cuda:0:20GiB, sim:2x64MiB, host:1GiB or disk:/tmp:8GiB");
  }

  // Parses a budget: a size that is not 0.
  Status parse_budget(std::string_view item, std::string_view text, Bytes& budget) const {
    const Result<Bytes> size = parse_size(text);
    if (!size.ok()) return refuse(in_quotes(item) + ": " + size.status().message());
    if (size.value().count() < kAlignment) {
      return refuse(in_quotes(item) + ": a budget of " + std::to_string(size.value().count()) +
                    " B is too small, expected " + std::to_string(kAlignment) + "B or more, as in 64MiB");
    }
    budget = size.value();
    return Status::okay();
  }

  Status parse_auto(std::string_view item, bool bare, std::string_view rest) {
    if (spec_.automatic) return refuse(in_quotes(item) + ": auto was named before");
    spec_.automatic = true;
    if (bare) return Status::okay();
    Bytes budget;
    IK_RETURN_IF_ERROR(parse_budget(item, rest, budget));
    spec_.automatic_budget = budget;
    return Status::okay();
  }

  // Nodes without data take addresses alone.
  Bytes limit() const { return spec_.data ? host_memory_ : kMostAddresses; }

  Status check_host_memory(std::string_view item, Bytes wanted, const char* what) const {
    if (wanted <= limit()) return Status::okay();
    return refuse(in_quotes(item) + ": " + what + " " + to_string(wanted) + ", but this process may use " +
                  to_string(limit()) + (spec_.data ? " of memory" : " of addresses") +
                  "; write a smaller size");
  }

  Status parse_simulated(std::string_view item, const AcceleratorKind& kind, std::string_view rest) {
    const std::string name(kind.name);
    if (rest.empty())
      return refuse(in_quotes(item) + " has no size, expected " + name + ":SIZE or " + name +
                    ":COUNTxSIZE, as in " + name + ":2x64MiB");
    const size_t cross = rest.find('x');
    std::optional<int> count = 1;
    if (cross != std::string_view::npos) {
      count = parse_index(rest.substr(0, cross));
      if (!count || *count == 0 || static_cast<size_t>(*count) > kMaxNodes) {
        return refuse(in_quotes(item) + ": " + in_quotes(rest.substr(0, cross)) + " is no count from 1 to " +
                      std::to_string(kMaxNodes) + ", as in " + name + ":2x64MiB");
      }
    }
    Bytes budget;
    IK_RETURN_IF_ERROR(
        parse_budget(item, cross == std::string_view::npos ? rest : rest.substr(cross + 1), budget));
    // A budget beyond the machine is reported as it is: its multiple may overflow.
    const Bytes all = budget > limit() ? budget : Bytes(simulated_ + *count * budget.count());
    IK_RETURN_IF_ERROR(check_host_memory(item, all, "the simulated nodes need"));
    simulated_ = all.count();
    for (int i = 0; i < *count; ++i) {
      const int index = count_of(kind);
      NodeSpec node{.kind = NodeKind::accelerator,
                    .accelerator = kind.name,
                    .simulated = true,
                    .name = name + ":" + std::to_string(index),
                    .index = index,
                    .budget = budget};
      node.sim = sim_;
      node.sim.name = node.name;
      node.sim.capacity = budget;
      // Nodes differ in the items that they execute late.
      node.sim.seed = sim_.seed + static_cast<uint64_t>(index);
      add(std::move(node));
      IK_RETURN_IF_ERROR(check_count());
    }
    return Status::okay();
  }

  Status parse_visible(std::string_view item, const AcceleratorKind& kind, bool bare, std::string_view rest) {
    const std::string name(kind.name);
    NodeSpec node{.kind = NodeKind::accelerator, .accelerator = kind.name, .name = name};
    const size_t colon = rest.find(':');
    const std::string_view first = rest.substr(0, colon);
    if (all_digits(first)) {
      node.index = parse_index(first);
      if (!node.index || *node.index >= 128)
        return refuse(in_quotes(item) + ": the index is beyond 127, expected " + name + ":0:20GiB");
      node.name += ":" + std::to_string(*node.index);
      rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
      bare = colon == std::string_view::npos;
    }
    if (!bare) {
      Bytes budget;
      IK_RETURN_IF_ERROR(parse_budget(item, rest, budget));
      node.budget = budget;
    }
    for (const NodeSpec& other : spec_.nodes) {
      if (other.accelerator != kind.name) continue;
      if (other.index == node.index) return refuse(in_quotes(item) + ": " + node.name + " was named before");
      if (!other.index || !node.index)
        return refuse(in_quotes(item) + ": " + name + " means all GPUs, so no GPU can be named beside it");
    }
    add(std::move(node));
    return check_count();
  }

  Status parse_host(std::string_view item, bool bare, std::string_view rest) {
    if (has(NodeKind::host))
      return refuse(in_quotes(item) + ": host was named before, there is one host memory");
    NodeSpec node{.kind = NodeKind::host, .name = "host"};
    if (!bare) {
      Bytes budget;
      IK_RETURN_IF_ERROR(parse_budget(item, rest, budget));
      IK_RETURN_IF_ERROR(check_host_memory(item, budget, "asked"));
      node.budget = budget;
      spec_.host_named = true;
    }
    add(std::move(node));
    return check_count();
  }

  Status parse_disk(std::string_view item, std::string_view rest) {
    if (has(NodeKind::disk))
      return refuse(in_quotes(item) + ": disk was named before, there is one spill file");
    const size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos || colon == 0) {
      return refuse(in_quotes(item) + (rest.empty() || colon == 0 ? " has no directory" : " has no size") +
                    ", expected disk:DIRECTORY:SIZE, as in disk:/tmp:8GiB");
    }
    Bytes budget;
    IK_RETURN_IF_ERROR(parse_budget(item, rest.substr(colon + 1), budget));
    const std::string path(rest.substr(0, colon));
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) {
      return refuse(in_quotes(item) + ": directory " + in_quotes(path) + ": " + std::strerror(errno) +
                    ", expected a directory that is there, as in disk:/tmp:8GiB");
    }
    if (!S_ISDIR(found.st_mode))
      return refuse(in_quotes(item) + ": " + in_quotes(path) +
                    " is no directory, expected one, as in disk:/tmp:8GiB");
    if (::access(path.c_str(), W_OK | X_OK) != 0) {
      return refuse(in_quotes(item) + ": directory " + in_quotes(path) +
                    " cannot be written: " + std::strerror(errno));
    }
    add({.kind = NodeKind::disk, .name = "disk", .budget = budget, .path = path});
    return check_count();
  }

  // One place is reserved for the host, which is added if it is not named.
  Status check_count() const {
    const size_t count = spec_.nodes.size() + (has(NodeKind::host) ? 0 : 1);
    if (count <= kMaxNodes) return Status::okay();
    return refuse("more than " + std::to_string(kMaxNodes) + " nodes, host included; name fewer");
  }

  Status check_together() const {
    if (!spec_.data) IK_RETURN_IF_ERROR(check_without_data());
    if (!spec_.automatic) return Status::okay();
    for (const NodeSpec& node : spec_.nodes) {
      if (node.kind != NodeKind::disk) {
        return refuse("auto names the GPUs and host, so " + node.name +
                      " cannot stand beside it; only a disk can, as in auto,disk:/tmp:8GiB");
      }
    }
    return Status::okay();
  }

  // Nodes that compute or store bytes cannot be combined with nodes without data.
  Status check_without_data() const {
    for (const NodeSpec& node : spec_.nodes) {
      if (node.kind != NodeKind::host && !node.simulated) {
        return refuse(node.name + " needs data, which INNKEEPER_SIM has off; sim and host nodes need none");
      }
    }
    if (std::ranges::any_of(spec_.nodes, &NodeSpec::simulated)) return Status::okay();
    return refuse(
        "no simulated node is named, and nothing else works without data, which INNKEEPER_SIM has "
        "off; name one, as in sim:8x80GiB,host:1TiB");
  }

  const sim::Options sim_;
  const Bytes host_memory_;
  MachineSpec spec_;
  int64_t simulated_ = 0;  // Bytes of all simulated nodes so far.
};

}  // namespace

Result<MachineSpec> parse_machine(std::string_view nodes, std::string_view sim_options, Bytes host_memory,
                                  LocalShare share) {
  Result<sim::Options> sim = parse_sim_options(sim_options);
  if (!sim.ok()) return sim.status();
  return Parser(std::move(sim).value(), host_memory, share).parse(nodes);
}

std::vector<int> LocalShare::gpus(int visible) const {
  if (visible <= 0) return {};
  if (visible < count) return {rank % visible};
  std::vector<int> own(static_cast<size_t>(visible / count));
  std::iota(own.begin(), own.end(), rank * (visible / count));
  return own;
}

int LocalShare::sharers(int visible) const {
  if (visible <= 0 || visible >= count) return 1;
  return count / visible + (rank % visible < count % visible ? 1 : 0);
}

std::string simulated_uuid(int index) {
  char digits[13];
  std::snprintf(digits, sizeof digits, "%012x", static_cast<unsigned>(index));
  return std::string(kSimulatedUuid) + digits;
}

std::optional<int> simulated_index(std::string_view uuid) {
  if (!uuid.starts_with(kSimulatedUuid)) return std::nullopt;
  const std::string_view digits = uuid.substr(kSimulatedUuid.size());
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index, 16);
  if (error != std::errc() || simulated_uuid(index) != uuid) return std::nullopt;
  return index;
}

std::string simulated_node(std::string_view uuid) {
  const std::optional<int> index = simulated_index(uuid);
  return index ? std::string(kSim) + ":" + std::to_string(*index) : "";
}

void keep_listed(MachineSpec& spec, std::string_view list) {
  std::vector<NodeSpec> kept;
  for (std::string_view item : split_items(list)) {
    const int index = (all_digits(item) ? parse_index(item) : simulated_index(item)).value_or(-1);
    const auto named = [&](const NodeSpec& node) { return node.accelerator == kSim && node.index == index; };
    const auto found = std::find_if(spec.nodes.begin(), spec.nodes.end(), named);
    if (found == spec.nodes.end()) break;
    if (std::any_of(kept.begin(), kept.end(), named)) {
      kept.clear();
      break;
    }
    kept.push_back(*found);
  }
  for (int i = 0; NodeSpec & node : kept) node.index = i++;  // The nodes are renumbered; their names stay.
  for (NodeSpec& node : spec.nodes)
    if (node.accelerator != kSim) kept.push_back(std::move(node));
  spec.nodes = std::move(kept);
}

Status part_one_memory(MachineSpec& spec, Bytes free, Bytes memory) {
  constexpr Bytes kLeast = MiB(16);  // A GPU is useless with less memory.
  Bytes named{0};
  std::string names;
  std::vector<NodeSpec*> unnamed;
  NodeSpec* host = nullptr;
  for (NodeSpec& node : spec.nodes) {
    if (node.kind == NodeKind::host) host = &node;
    if (node.kind == NodeKind::host ? !spec.host_named : !node.integrated) continue;
    if (!node.budget) {
      unnamed.push_back(&node);
      continue;
    }
    named += *node.budget;
    names += (names.empty() ? "" : " and ") + node.name + "'s " + to_string(*node.budget);
  }
  if (named > memory) {
    return refuse(names + " are of one memory, since the GPU shares the host's, and it has " +
                  to_string(memory) + "; name less");
  }
  if (!spec.host_named && host != nullptr) {
    const int64_t left = std::min(free.count() / 16, (memory - named).count());
    host->budget = round_up(Bytes(std::max(left, kAlignment)));
    named += *host->budget;
  }
  for (NodeSpec* node : unnamed) {
    const int64_t share = (free - named).count() / 5 * 4 / std::ssize(unnamed);
    if (share < kLeast.count()) {
      return refuse(node->name + " shares the host's memory, of which " + to_string(free) + " are free" +
                    (names.empty() ? "" : " and " + names + " are named") + ": too little is left for it");
    }
    node->budget = round_up(Bytes(share));
  }
  return {};
}

std::optional<int> local_rank_from_environment() { return index_from_environment("LOCAL_RANK"); }

LocalShare local_share_from_environment() {
  const std::optional<int> rank = local_rank_from_environment();
  const std::optional<int> count = index_from_environment("LOCAL_WORLD_SIZE");
  return rank && count && *rank < *count ? LocalShare{*rank, *count} : LocalShare{};
}

}  // namespace innkeeper
