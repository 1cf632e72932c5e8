// The walk's model of a block: the bytes that it must hold, its holders, and the steps that are using it.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "support/machine.h"

namespace innkeeper::test {

struct Model {
  Block* block = nullptr;
  Contents contents = {};
  bool written = false;
  bool pinned = false;
  bool being_pinned = false;
  NodeId pinned_at = kNoNode;
  NodeId escaped_at = kNoNode;
  const void* pinned_data = nullptr;
  const void* escaped_data = nullptr;
  // Steps that use it in all lanes: the number of readers, and whether one writes.
  int readers = 0;
  bool writer = false;
  // Number of requests about its place: they are ordered with nothing, but it must not die meanwhile.
  int requests = 0;

  bool held() const { return pinned || escaped_at != kNoNode; }
};
using ModelPtr = std::shared_ptr<Model>;

// The blocks that a step uses: no other step uses one of them if either writes.
class Hold {
 public:
  Hold(const ModelPtr& written, std::vector<ModelPtr> read) : written_(written) {
    std::erase(read, written);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    read_ = std::move(read);
    free_ = written_ == nullptr || (!written_->writer && written_->readers == 0);
    for (const ModelPtr& model : read_) free_ = free_ && !model->writer;
    if (!free_) return;
    if (written_ != nullptr) written_->writer = true;
    for (const ModelPtr& model : read_) ++model->readers;
  }
  ~Hold() {
    if (!free_) return;
    if (written_ != nullptr) written_->writer = false;
    for (const ModelPtr& model : read_) --model->readers;
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  bool free() const { return free_; }

 private:
  const ModelPtr written_;
  std::vector<ModelPtr> read_;
  bool free_ = false;
};

// A request about a block, as any thread may make at any time while the block lives.
class Requested {
 public:
  explicit Requested(ModelPtr model) : model_(std::move(model)) { ++model_->requests; }
  ~Requested() { --model_->requests; }
  Requested(const Requested&) = delete;
  Requested& operator=(const Requested&) = delete;

 private:
  const ModelPtr model_;
};

// State that the holder of an escaped tensor keeps after its block has died.
struct Detached {
  Memory memory;
  NodeId node;
  Contents contents;
};

}  // namespace innkeeper::test
