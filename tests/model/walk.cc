#include "model/walk.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "base/test_point.h"
#include "model/block_model.h"
#include "model/interleaving.h"

namespace innkeeper::test {
namespace {

constexpr size_t kLongHeld = 3;       // Most pins and escapes at once, so that operators find free space.
constexpr size_t kCheckInterval = 6;  // Steps of all lanes together between two checks.

class Walk {
 public:
  explicit Walk(const WalkOptions& options) : options_(options), machine_(watched(options.machine, faults_)) {
    machine_->set_observers({.escapes = [this](Block& block, NodeId node) {
      const auto found = escaped_.find(&block);
      return found != escaped_.end() && found->second == node;
    }});
  }

  WalkResult run(const Program& program) {
    if (options_.lanes == 1) {
      for (; step_ < program.size() && good(); ++step_) {
        perform(program[step_]);
        check_all();
      }
    } else {
      run_lanes(program);
    }
    finish();
    const Stats stats = machine_->stats();
    return {failure_, stats.evictions, stats.fetches, left_out_};
  }

 private:
  bool good() const { return failure_.empty(); }
  void fail(const std::string& what) {
    if (good()) failure_ = "step " + std::to_string(step_) + ": " + what;
  }

  void run_lanes(const Program& program) {
    Interleaving interleaving(options_.lanes, options_.machine.seed);
    faults_.set_watcher([&] { interleaving.point(); });
    for (; step_ < program.size() && good(); step_ += kCheckInterval) {
      std::vector<std::vector<Step>> dealt(options_.lanes);
      for (size_t i = step_; i < std::min(step_ + kCheckInterval, program.size()); ++i) {
        dealt[program[i].lane % options_.lanes].push_back(program[i]);
      }
      std::vector<std::function<void()>> work;
      for (const std::vector<Step>& steps : dealt) {
        work.emplace_back([this, &steps] {
          for (const Step& step : steps) {
            if (good()) perform(step);
          }
        });
      }
      interleaving.run(std::move(work));
      check_all();
    }
    faults_.set_watcher({});
  }

  // ---------------------------------------------------------------- checks

  void check_all() {
    if (!good()) return;
    const std::string broken = machine_->check_invariants();
    if (!broken.empty()) return fail(broken);
    for (const ModelPtr& model : blocks_) {
      if (model->pinned) check_place(*model, model->pinned_at, model->pinned_data, "pinned");
      if (model->escaped_at != kNoNode)
        check_place(*model, model->escaped_at, model->escaped_data, "escaped");
    }
  }

  void check_place(const Model& model, NodeId node, const void* data, const char* why) {
    if (machine_->table().has_replica(*model.block, node) && model.block->data(node) == data) return;
    fail("I3: block " + name_of(model) + " has moved although it is " + why);
  }

  static std::string name_of(const Model& model) {
    return std::to_string(static_cast<uint64_t>(model.block->id()));
  }

  void compare(const std::string& what, std::span<const unsigned char> seen,
               std::span<const unsigned char> wanted) {
    if (std::equal(wanted.begin(), wanted.end(), seen.begin())) return;
    const auto at =
        static_cast<size_t>(std::mismatch(wanted.begin(), wanted.end(), seen.begin()).first - wanted.begin());
    fail(what + ": byte " + std::to_string(at) + " of " + std::to_string(wanted.size()) + " is " +
         std::to_string(seen[at]) + ", not " + std::to_string(wanted[at]));
  }

  // A request may fail for want of free space where the machine is too small, or because a holder keeps the
  // block.
  bool done(const Status& status, bool held = false) {
    if (status.ok()) return true;
    const Code code = status.code();
    if (code == Code::out_of_memory && options_.may_run_out) return false;
    if (held && (code == Code::invalid_argument || code == Code::busy)) return false;
    fail(status.message());
    return false;
  }

  // ---------------------------------------------------------------- choices

  ModelPtr chosen(uint8_t number) const {
    return blocks_.empty() ? nullptr : blocks_[number % blocks_.size()];
  }
  NodeId computing(uint8_t number) {
    const std::vector<NodeId>& nodes = machine_->computing_nodes();
    return nodes[number % nodes.size()];
  }
  NodeId any_node(uint8_t number) { return NodeId{static_cast<uint8_t>(number % machine_->node_count())}; }
  size_t size_of(const Step& step) const {
    return step.size % 20 == 0 ? 0 : 1 + step.size * size_t{7} % options_.max_size;
  }
  Contents fresh(size_t size) { return pattern(size, ++versions_); }
  size_t held() const {
    size_t count = detached_.size();
    for (const ModelPtr& model : blocks_)
      count += (model->pinned ? 1 : 0) + (model->escaped_at != kNoNode ? 1 : 0);
    return count;
  }
  // A write at another node must wait until the holder lets go.
  static bool held_elsewhere(const Model& model, NodeId node) {
    return model.escaped_at != kNoNode && model.escaped_at != node;
  }

  // ---------------------------------------------------------------- steps

  void perform(const Step& step) {
    switch (step.verb) {
      case Verb::create: return create(size_of(step));
      case Verb::make: return make(step);
      case Verb::budget: return change_budget(step);
      case Verb::relieve: return relieve(step);
      case Verb::evict_all: return (void)done(machine_->evictor().evict_all());
      case Verb::synchronize: return (void)done(machine_->synchronize());
      case Verb::trim: return (void)machine_->trim();
      case Verb::stats: return check_stats();
      case Verb::let_go: return let_go(step);
      default: break;
    }
    const ModelPtr model = chosen(step.target);
    if (model == nullptr) return;
    switch (step.verb) {
      case Verb::write: return write(model, computing(step.node));
      case Verb::read: return read(model, computing(step.node));
      case Verb::combine: return combine(model, step);
      case Verb::copy_range: return copy_range(model, step);
      case Verb::prefetch:
        return request(model,
                       [&] { return machine_->requests().prefetch(*model->block, any_node(step.node)); });
      case Verb::evict: return evict(model);
      case Verb::write_back:
        return request(model, [&] { return machine_->requests().write_back(*model->block); });
      case Verb::destroy: return destroy(model);
      case Verb::pin: return pin(model, computing(step.node));
      case Verb::unpin: return unpin(model);
      case Verb::escape: return escape(model, computing(step.node));
      case Verb::resize: return resize(model, step);
      default: return;
    }
  }

  bool started(const Hold& hold) {
    if (!hold.free()) ++left_out_;
    return hold.free();
  }

  void create(size_t size) {
    if (blocks_.size() >= options_.max_blocks) return;
    Block* block = machine_->create(Bytes(static_cast<int64_t>(size)));
    blocks_.push_back(std::make_shared<Model>(Model{.block = block, .contents = Contents(size, 0)}));
  }

  void make(const Step& step) {
    const size_t size = std::max<size_t>(size_of(step), 1);
    if (blocks_.size() >= options_.max_blocks) return;
    const Contents contents = fresh(size);
    Result<Block*> made = machine_.make(computing(step.node), contents);
    if (!done(made.status())) return;
    blocks_.push_back(
        std::make_shared<Model>(Model{.block = made.value(), .contents = contents, .written = true}));
  }

  void write(const ModelPtr& model, NodeId node) {
    const Hold hold(model, {});
    if (!started(hold) || held_elsewhere(*model, node)) return;
    const Contents contents = fresh(model->contents.size());
    const Status status = machine_.run(node, {{.block = model->block, .write = true}}, [&](auto operands) {
      const auto half = static_cast<std::ptrdiff_t>(contents.size() / 2);
      std::copy(contents.begin(), contents.begin() + half, operands[0].begin());
      reach("kernel");
      std::copy(contents.begin() + half, contents.end(), operands[0].begin() + half);
    });
    if (!done(status, model->pinned)) return;
    model->contents = contents;
    model->written = true;
  }

  void read(const ModelPtr& model, NodeId node) {
    const Hold hold(nullptr, {model});
    if (!started(hold) || !model->written) return;
    Result<Contents> seen = machine_.read(*model->block, node);
    if (done(seen.status())) compare("block " + name_of(*model), seen.value(), model->contents);
  }

  // out = out * 3 + the sum of the inputs; a block without contents counts as zeros.
  void combine(const ModelPtr& out, const Step& step) {
    std::vector<ModelPtr> inputs;
    for (const uint8_t number : {step.source, step.other}) {
      const ModelPtr input = chosen(number);
      if (input->written && inputs.size() < step.size % 3u) inputs.push_back(input);
    }
    const Hold hold(out, inputs);
    std::vector<Access> accesses{{.block = out->block, .write = true}};
    for (const ModelPtr& input : inputs) accesses.push_back({.block = input->block});
    const NodeId home = computing(step.node);
    const NodeId node = step.size % 2 == 0 ? machine_->place(std::span(accesses), home) : home;
    if (!started(hold) || held_elsewhere(*out, node)) return;
    const auto apply = [](std::span<unsigned char> target, std::span<const unsigned char> input) {
      for (size_t i = 0; i < target.size() && i < input.size(); ++i) {
        target[i] = static_cast<unsigned char>((target[i] * 3 + input[i]) % 255);
      }
    };
    const size_t scratch = step.size % 5 == 0 ? 1 + step.size % 2000u : 0;
    const Status status = machine_.run(node, accesses, [&](auto operands) {
      if (scratch != 0) use_scratch(node, scratch);
      if (!out->written) std::fill(operands[0].begin(), operands[0].end(), static_cast<unsigned char>(0));
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] != out) compare("operand " + name_of(*inputs[i]), operands[i + 1], inputs[i]->contents);
      }
      for (size_t i = 0; i < inputs.size(); ++i) {
        reach("kernel");
        apply(operands[0], operands[i + 1]);
      }
    });
    if (!done(status, out->pinned)) return;
    if (!out->written) std::fill(out->contents.begin(), out->contents.end(), static_cast<unsigned char>(0));
    for (const ModelPtr& input : inputs) apply(out->contents, input->contents);
    out->written = true;
  }

  // A kernel can do without its scratch memory if the node has none.
  void use_scratch(NodeId node, size_t size) {
    Result<Memory> memory = machine_->device(node).allocate(Bytes(static_cast<int64_t>(size)));
    if (memory.ok()) std::memset(memory.value().data(), 3, size);
  }

  // A kernel on views: it reads a part of one block and writes a part of another, or of the same.
  void copy_range(const ModelPtr& out, const Step& step) {
    const ModelPtr in = chosen(step.source);
    const NodeId node = computing(step.node);
    const Hold hold(out, {in});
    if (!started(hold) || !in->written || !out->written || held_elsewhere(*out, node)) return;
    const size_t most = std::min(in->contents.size(), out->contents.size());
    if (most == 0) return;
    const size_t length = 1 + step.size % most;
    const size_t from = step.other * size_t{17} % (in->contents.size() - length + 1);
    const size_t to = step.lane * size_t{31} % (out->contents.size() - length + 1);
    std::vector<Access> accesses{{.block = out->block, .write = true}};
    if (in != out) accesses.push_back({.block = in->block});
    const NodeAdmission scope = machine_.engine().admit(node, Bytes(0));
    if (!done(machine_->acquire(node, std::span(accesses)), out->pinned)) return;
    auto* target = static_cast<unsigned char*>(out->block->data(node)) + to;
    const auto* source = static_cast<const unsigned char*>(in->block->data(node)) + from;
    sim::Accelerator* gpu = machine_.gpu(node);
    if (gpu != nullptr) gpu->begin_kernel(0);
    compare("part of block " + name_of(*in), std::span(source, length),
            std::span(in->contents).subspan(from, length));
    std::memmove(target, source, length);
    const sim::WrittenRange written{target, length};
    if (gpu != nullptr) gpu->end_kernel(0, std::span(&written, 1), {});
    machine_->release(node, std::span(accesses));
    std::memmove(out->contents.data() + to, in->contents.data() + from, length);
  }

  template <class Request>
  void request(const ModelPtr& model, const Request& make_request) {
    const Requested requested(model);
    done(make_request());
  }

  void evict(const ModelPtr& model) {
    const Requested requested(model);
    if (!done(machine_->requests().evict(*model->block), model->held() || options_.lanes > 1) ||
        options_.lanes > 1)
      return;
    for (const NodeId node : machine_->requests().where(*model->block)) {
      if (machine_.gpu(node) != nullptr)
        fail("an evicted block is still at " + std::to_string(index_of(node)));
    }
  }

  void pin(const ModelPtr& model, NodeId node) {
    const Hold hold(nullptr, {model});
    if (!started(hold) || model->pinned || model->being_pinned || model->contents.empty()) return;
    if (held() + pinning_ >= kLongHeld) return;
    ++pinning_;
    model->being_pinned = true;
    const bool pinned = done(machine_->requests().pin(*model->block, node));
    model->being_pinned = false;
    --pinning_;
    if (!pinned) return;
    if (!machine_->requests().is_pinned(*model->block)) fail("a pinned block is said not to be");
    model->pinned = true;
    model->pinned_at = node;
    model->pinned_data = model->block->data(node);
  }

  void unpin(const ModelPtr& model) {
    if (!model->pinned || model->writer) return;
    machine_->requests().unpin(*model->block);
    model->pinned = false;
  }

  void escape(const ModelPtr& model, NodeId node) {
    const Hold hold(model, {});  // Exclusive: another pin would be taken for the holder.
    if (!started(hold) || model->held() || held() + pinning_ >= kLongHeld || !model->written) return;
    if (model->contents.empty()) return;
    Access access{.block = model->block};
    const NodeAdmission scope = machine_.engine().admit(node, Bytes(0));
    ++pinning_;
    const bool acquired = done(machine_->acquire(node, std::span(&access, 1)));
    --pinning_;
    if (!acquired) return;
    model->escaped_at = node;
    model->escaped_data = model->block->data(node);
    escaped_[model->block] = node;
    machine_->keep_escaped(node, access);
  }

  void let_go(const Step& step) {
    if (!detached_.empty()) {
      const Detached gone = std::move(detached_.back());
      detached_.pop_back();
      sim::Accelerator* gpu = machine_.gpu(gone.node);
      if (gpu != nullptr) gpu->begin_kernel(0);
      compare("detached memory",
              {static_cast<const unsigned char*>(gone.memory.data()), gone.contents.size()}, gone.contents);
      return;
    }
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const ModelPtr& model = blocks_[(step.target + i) % blocks_.size()];
      if (model->escaped_at == kNoNode || model->writer || model->readers != 0) continue;
      sim::Accelerator* gpu = machine_.gpu(model->escaped_at);
      if (gpu != nullptr) gpu->begin_kernel(0);
      compare("escaped block " + name_of(*model),
              {static_cast<const unsigned char*>(model->escaped_data), model->contents.size()},
              model->contents);
      model->escaped_at = kNoNode;
      escaped_.erase(model->block);
      return;
    }
  }

  // A kernel gives its operand other memory, as resize_ and out= do.
  void resize(const ModelPtr& model, const Step& step) {
    const Hold hold(model, {});
    if (!started(hold) || model->held()) return;
    const size_t size = std::max<size_t>(size_of(step), 1);
    const Bytes bytes(static_cast<int64_t>(size));
    if (!model->written && machine_->requests().where(*model->block).empty()) {
      if (done(machine_->resize_unwritten(*model->block, bytes))) model->contents.assign(size, 0);
      return;
    }
    const NodeId node = computing(step.node);
    std::vector<Access> accesses{{.block = model->block, .write = true}};
    const NodeAdmission scope = machine_.engine().admit(node, Bytes(0));
    if (!done(machine_->acquire(node, std::span(accesses)))) return;
    Result<Memory> memory = machine_->device(node).allocate(bytes);
    if (done(memory.status())) {
      const Contents contents = fresh(size);
      sim::Accelerator* gpu = machine_.gpu(node);
      if (gpu != nullptr) gpu->begin_kernel(0);
      std::copy(contents.begin(), contents.end(), static_cast<unsigned char*>(memory.value().data()));
      const sim::WrittenRange written{memory.value().data(), size};
      if (gpu != nullptr) gpu->end_kernel(0, std::span(&written, 1), {});
      machine_->replace(*model->block, node, std::move(memory).value(), bytes);
      model->contents = contents;
      model->written = true;
    }
    machine_->release(node, std::span(accesses));
  }

  void destroy(const ModelPtr& model) {
    const Hold hold(model, {});
    if (!started(hold) || model->requests != 0) return;
    std::erase(blocks_, model);
    if (model->escaped_at != kNoNode) {
      detached_.push_back(
          {machine_->detach(*model->block, model->escaped_at), model->escaped_at, model->contents});
      escaped_.erase(model->block);
    }
    machine_->destroy(model->block);
  }

  void change_budget(const Step& step) {
    const NodeId node = computing(step.node);
    const Bytes full = machine_.gpu(node) != nullptr ? options_.machine.budget : options_.machine.host_budget;
    const Bytes before = machine_->budget(node);
    const Bytes wanted(full.count() - step.size % (full.count() / 4));
    const Status status = machine_->set_budget(node, wanted);
    if (options_.lanes > 1) return (void)done(status, true);
    if (!status.ok() && (status.code() != Code::out_of_memory || (held() == 0 && !options_.may_run_out))) {
      fail(status.message());
    }
    if (machine_->budget(node) != (status.ok() ? wanted : before)) fail("the budget is neither old nor new");
  }

  // The device reports that it is full although the budget is not. It may find that nothing can leave.
  void relieve(const Step& step) {
    const NodeId node = computing(step.node);
    done(machine_->synchronize());  // Lets earlier requests end, so that they take no space later.
    const Bytes before = machine_->used(node);
    const Status status = machine_->evictor().relieve(node, Bytes(1 + step.size % 4096));
    if (options_.lanes > 1 || !status.ok()) return;
    done(machine_->synchronize());  // Frees memory that copies still touch.
    if (machine_->used(node) >= before)
      fail("relief left nothing free at node " + std::to_string(index_of(node)) + ": " + to_string(before) +
           " were in use, " + to_string(machine_->used(node)) + " are");
  }

  void check_stats() {
    const Stats stats = machine_->stats();
    if (options_.lanes > 1) return;
    for (const auto& [name, row] : stats.nodes) {
      if (row.resident != row.recount)
        fail(name + ": " + std::to_string(row.resident) + " bytes are counted, " +
             std::to_string(row.recount) + " are there");
      if (row.peak < row.resident) fail(name + ": the peak is less than what is there");
    }
  }

  // ---------------------------------------------------------------- the end

  void finish() {
    for (const ModelPtr& model : blocks_) {
      if (good()) read(model, computing(0));
    }
    while (held() != 0 && good()) {
      const size_t before = held();
      let_go({});
      for (const ModelPtr& model : blocks_) unpin(model);
      if (held() == before) break;
    }
    detached_.clear();
    while (!blocks_.empty()) destroy(blocks_.back());
    detached_.clear();
    if (!machine_->synchronize().ok()) fail("the machine does not come to rest");
    if (!good()) return;
    fail_if(machine_->check_invariants());
    if (machine_->table().block_count() != 0)
      fail(std::to_string(machine_->table().block_count()) + " blocks are left");
    for (size_t i = 0; i < machine_->node_count(); ++i) {
      const NodeId node{static_cast<uint8_t>(i)};
      if (machine_->used(node) != Bytes(0))
        fail(to_string(machine_->used(node)) + " are left at node " + std::to_string(i));
    }
  }
  void fail_if(const std::string& broken) {
    if (!broken.empty()) fail(broken);
  }

  static MachineOptions watched(MachineOptions machine, FaultPlan& plan) {
    machine.faults = &plan;
    return machine;
  }

  FaultPlan faults_;  // Injects no failure; lanes overtake each other in its watcher.
  const WalkOptions options_;
  Machine machine_;
  std::vector<ModelPtr> blocks_;
  std::map<Block*, NodeId> escaped_;  // Node of each real tensor that a holder keeps.
  std::vector<Detached> detached_;
  uint64_t versions_ = 0;
  size_t step_ = 0;
  size_t pinning_ = 0;  // Pins and escapes in progress.
  int64_t left_out_ = 0;
  std::string failure_;
};

}  // namespace

WalkResult walk(const WalkOptions& options, const Program& program) { return Walk(options).run(program); }

}  // namespace innkeeper::test
