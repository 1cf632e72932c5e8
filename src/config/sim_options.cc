#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "config/machine.h"
#include "config/text.h"
#include "cost/gpu_model.h"
#include "cost/link_model.h"

namespace innkeeper {
namespace {

Status refuse_sim(const std::string& what) {
  return Status(Code::invalid_argument, "INNKEEPER_SIM: " + what);
}

template <class Model>
Status choose(Result<Model> model, std::string_view option, Model& chosen) {
  if (!model.ok()) return refuse_sim(in_quotes(option) + " " + model.status().message());
  chosen = std::move(model.value());
  return Status::okay();
}

template <class Flag>
Status choose_flag(std::string_view key, std::string_view value, std::string_view option, Flag& flag) {
  if (value != "on" && value != "off") {
    const std::string name(key);
    return refuse_sim(in_quotes(option) + ": expected " + name + "=on or " + name + "=off");
  }
  flag = value == "on";
  return Status::okay();
}

Status choose_seed(std::string_view text, std::string_view option, uint64_t& seed) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    return refuse_sim(in_quotes(option) + " has no seed from 0 to 18446744073709551615, as in random:42");
  }
  return Status::okay();
}

Status choose_microseconds(std::string_view text, std::string_view option, double& seconds) {
  constexpr double kMost = 1e6;
  double found = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
  if (error != std::errc() || std::string_view(end, text.data() + text.size()) != "us" || !(found >= 0) ||
      found > kMost)
    return refuse_sim(in_quotes(option) + ": expected microseconds from 0 to 1000000, as in host=20us");
  seconds = found * 1e-6;
  return Status::okay();
}

// Options that exclude each other have one kind.
std::string_view kind_of(std::string_view key) {
  const bool orders = key == "late" || key == "early" || key.starts_with("random");
  return orders ? "visibility" : key;
}

}  // namespace

Result<sim::Options> parse_sim_options(std::string_view text) {
  sim::Options options;
  std::optional<bool> poison;
  std::map<std::string_view, std::string_view> said;  // Options by their kind.
  for (std::string_view option : split_items(text)) {
    const size_t equals = option.find('=');
    const std::string_view key = option.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : option.substr(equals + 1);
    if (const std::string_view before = std::exchange(said[kind_of(key)], option); !before.empty())
      return refuse_sim(in_quotes(before) + " and " + in_quotes(option) + " stand together; leave one out");
    if (option == "late") {
      options.visibility = sim::Visibility::late;
    } else if (option == "early") {
      options.visibility = sim::Visibility::early;
    } else if (option == "random" || option.starts_with("random:")) {
      options.visibility = sim::Visibility::random;
      if (option != "random") IK_RETURN_IF_ERROR(choose_seed(option.substr(7), option, options.seed));
    } else if (key == "poison") {
      IK_RETURN_IF_ERROR(choose_flag(key, value, option, poison));
    } else if (key == "data") {
      IK_RETURN_IF_ERROR(choose_flag(key, value, option, options.data));
    } else if (key == "times") {
      if (value != "told" && value != "hidden")
        return refuse_sim(in_quotes(option) + ": expected times=told or times=hidden");
      options.times_hidden = value == "hidden";
    } else if (key == "host") {
      IK_RETURN_IF_ERROR(choose_microseconds(value, option, options.host_seconds));
    } else if (key == "truth") {
      if (!value.starts_with("random:"))
        return refuse_sim(in_quotes(option) + ": expected truth=random:SEED");
      uint64_t seed = 0;
      IK_RETURN_IF_ERROR(choose_seed(value.substr(7), option, seed));
      options.truth.emplace(seed);
    } else if (key == "card") {
      return refuse_sim(in_quotes(option) + ": card is called gpu now");
    } else if (key == "gpu") {
      IK_RETURN_IF_ERROR(choose(cost::gpu_named(value), option, options.gpu));
    } else if (key == "link") {
      IK_RETURN_IF_ERROR(choose(cost::link_named(value), option, options.host_link));
    } else if (key == "peer") {
      IK_RETURN_IF_ERROR(choose(cost::link_named(value), option, options.peer_link));
    } else {
      return refuse_sim(
          in_quotes(option) +
          " is no option; expected late, early, random:SEED, poison=on, poison=off, data=on, data=off, "
          "times=told, times=hidden, truth=random:SEED, host=20us, gpu=NAME, link=NAME or peer=NAME, as "
          "in random:42,gpu=H100");
    }
  }
  if (!said.contains("link"))  // A GPU comes with its usual link.
    options.host_link = cost::link_named(options.gpu.link).value();
  if (!options.data && poison.value_or(false)) {
    return refuse_sim("poison=on has nothing to fill beside data=off; leave one of them out");
  }
  options.poison = poison.value_or(options.data && options.visibility != sim::Visibility::early);
  return options;
}

}  // namespace innkeeper
