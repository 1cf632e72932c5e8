// The engine's answers about nodes, which the planner's parts ask for while they plan.
//
// Thread safety: that of the callbacks; the planner calls them on its thread alone.
#pragma once

#include <functional>
#include <utility>

#include "base/types.h"
#include "plan/period_plan.h"

namespace innkeeper::plan {

class EngineView {
 public:
  // Bytes that the program's blocks may have at a node now; 0: nothing moves there.
  using FreeSpace = std::function<Bytes(NodeId)>;
  using About = std::function<AboutNode(NodeId)>;

  // `about` may be null: nothing is known of any node then.
  EngineView(FreeSpace free_space, About about)
      : free_space_(std::move(free_space)), about_(std::move(about)) {}

  Bytes free_space(NodeId node) const { return free_space_(node); }
  AboutNode about(NodeId node) const { return about_ ? about_(node) : AboutNode(); }

 private:
  const FreeSpace free_space_;
  const About about_;
};

}  // namespace innkeeper::plan
