#include "cli/grant/request_options.h"

#include <CLI/CLI.hpp>

#include <vector>

#include "cli/command.h"

namespace innkeeper::cli {

void RequestOptions::add_to(CLI::App& command) {
  count_option_ = command.add_option("-n,--gpus", count_, "How many GPUs, all or nothing (1)");
  memory_option_ =
      command.add_option("--mem", memory_, "So much of each, as 20G; without it GPUs are taken whole");
  by_option_ =
      command.add_option("--by", by_, "Best by free memory (free), its part (ratio), power or utilization");
  command.add_flag("--share", share_, "With others on the same GPU: the default with --mem");
  command.add_flag("--exclusive", exclusive_, "Each GPU for this lease alone: the default without --mem");
  wait_option_ =
      command.add_flag("--wait", wait_, "Wait in line: for ever or, as --wait=30s, so long (s, m, h, d)");
  count_option_->type_name("N");
  memory_option_->type_name("SIZE");
  by_option_->type_name("MODE");
}

lease::Request RequestOptions::request() const {
  std::vector<std::string> words;
  if (count_option_->count() > 0) words.push_back("--gpus=" + count_);
  if (memory_option_->count() > 0) words.push_back("--mem=" + memory_);
  if (by_option_->count() > 0) words.push_back("--by=" + by_);
  if (share_) words.emplace_back("--share");
  if (exclusive_) words.emplace_back("--exclusive");
  // CLI11 returns "true" for a flag without a value.
  if (wait_option_->count() > 0) words.push_back(wait_ == "true" ? "--wait" : "--wait=" + wait_);
  if (memory_ == "auto")
    fail(kUsage,
         "--mem auto is for a queue, which knows what its jobs needed before: name a size, as in --mem 20G");
  Result<lease::Request> parsed = lease::parse_request(words);
  if (!parsed.ok()) fail(kUsage, parsed.status().message());
  return std::move(parsed).value();
}

bool RequestOptions::count_given() const { return count_option_->count() > 0; }

bool RequestOptions::given() const {
  return share_ || exclusive_ ||
         count_option_->count() + memory_option_->count() + by_option_->count() + wait_option_->count() > 0;
}

}  // namespace innkeeper::cli
