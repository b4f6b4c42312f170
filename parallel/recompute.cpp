#include <lockstep/parallel/recompute.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/parallel/recompute/refusal.h>
#include <lockstep/parallel/recompute/surroundings.h>
#include <lockstep/parallel/recompute/tensor_saver.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace recomputing {

using Hooks = std::unique_ptr<torch::autograd::SavedVariableHooks>;

struct Description {
  explicit Description(const torch::Tensor& tensor)
      : sizes(tensor.sizes().vec()), dtype(tensor.scalar_type()), device(tensor.device()) {}

  bool operator==(const Description&) const = default;
  std::string text() const {
    return fmt::format("{} [{}] on {}", torch::toString(dtype), fmt::join(sizes, ", "), device.str());
  }

  std::vector<int64_t> sizes;
  torch::ScalarType dtype;
  torch::Device device;
};

constexpr auto kRepeatHint =
    "the part must do the same again: let it depend on its inputs, on parameters that do not change before "
    "backward, and on what it draws from torch's generators";

// The tensors that one part saves: in the first run their number and shapes, during backward they themselves.
// The graph's placeholders share it.
class SavedTensors : public TensorSaver, public std::enable_shared_from_this<SavedTensors> {
 public:
  SavedTensors(RecomputedPart::Run run, const RecomputedPart::Inputs& inputs,
               std::vector<torch::Tensor> buffers)
      : run_(std::move(run)), buffers_(std::move(buffers)), surroundings_(inputs) {
    for (const auto& input : inputs) inputs_.emplace_back(input);
  }

  void end_first_run() { state_ = State::kReady; }

  Hooks hooks() override;

 private:
  class Placeholder;
  class Again;

  enum class State { kFirstRun, kReady, kSecondRun };

  struct Saved {
    Description is;
    torch::Tensor again = {};  // of the second run; defined from then on until backward is done with it
    uint32_t version = 0;      // of `again` when it was saved
    bool released = false;     // its node is gone, or has run in a backward pass that frees the graph
  };

  // An input without its graph: a part that changes it in place gives it a node that owns this part. Its
  // version is checked as that of a tensor that an operation has saved.
  class Input {
   public:
    explicit Input(const torch::Tensor& input)
        : saved_(input.defined() ? input.detach() : input, /*is_output=*/false),
          requires_grad_(input.defined() && input.requires_grad()) {}

    torch::Tensor again() const {
      const auto input = saved_.unpack();
      return requires_grad_ ? input.detach().requires_grad_() : input;
    }

   private:
    torch::autograd::SavedVariable saved_;
    bool requires_grad_;
  };

  size_t note(const torch::Tensor& tensor) {
    saved_.push_back({.is = Description(tensor)});
    return saved_.size() - 1;
  }

  torch::Tensor unpack(size_t index);
  void release(size_t index);
  void run_again();

  const RecomputedPart::Run run_;
  std::vector<Input> inputs_;
  const std::vector<torch::Tensor> buffers_;
  const Surroundings surroundings_;

  std::recursive_mutex mutex_;  // several threads of autograd may run nodes of one graph
  State state_ = State::kFirstRun;
  std::vector<Saved> saved_;
  std::optional<int> backward_;  // the backward pass for which the part ran again
};

// Takes the place of a tensor that the first run saves.
class SavedTensors::Placeholder : public torch::autograd::SavedVariableHooks {
 public:
  explicit Placeholder(std::shared_ptr<SavedTensors> part) : part_(std::move(part)) {}
  ~Placeholder() override {
    if (index_) part_->release(*index_);
  }
  void call_pack_hook(const torch::Tensor& tensor) override { index_ = part_->note(tensor); }
  torch::Tensor call_unpack_hook() override { return part_->unpack(*index_); }

 private:
  const std::shared_ptr<SavedTensors> part_;
  std::optional<size_t> index_;
};

Hooks SavedTensors::hooks() { return std::make_unique<Placeholder>(shared_from_this()); }

// Takes the tensors that the second run saves.
class SavedTensors::Again : public TensorSaver {
 public:
  struct AllThere {};  // thrown to end the run

  explicit Again(SavedTensors& part) : part_(part) {}

  Hooks hooks() override { return std::make_unique<Taker>(*this); }
  size_t taken() const { return taken_; }

 private:
  class Taker : public torch::autograd::SavedVariableHooks {
   public:
    explicit Taker(Again& again) : again_(&again) {}
    void call_pack_hook(const torch::Tensor& tensor) override {
      std::exchange(again_, nullptr)->take(tensor);  // called once, in the run, which this may outlive
    }
    torch::Tensor call_unpack_hook() override {
      throw UsageError("a recomputed part runs a backward pass in its second run only", kRepeatHint);
    }

   private:
    Again* again_;
  };

  void take(const torch::Tensor& tensor) {
    if (taken_ == part_.saved_.size()) return;  // the part has caught AllThere
    auto& saved = part_.saved_[taken_];
    if (const Description is(tensor); is != saved.is) {
      throw UsageError(
          fmt::format("tensor {} that a recomputed part saves was {}, but is {} in its second run", taken_,
                      saved.is.text(), is.text()),
          kRepeatHint);
    }
    if (!saved.released) {
      saved.again = tensor.detach();
      saved.version = static_cast<uint32_t>(saved.again._version());
    }
    if (++taken_ == part_.saved_.size()) throw AllThere();
  }

  SavedTensors& part_;
  size_t taken_ = 0;
};

void SavedTensors::run_again() {
  RecomputedPart::Inputs inputs;
  for (const auto& input : inputs_) inputs.push_back(input.again());
  Again again(*this);
  state_ = State::kSecondRun;
  try {
    const WithSurroundings surroundings(surroundings_, buffers_);
    const SavingWith saving(again);
    run_(inputs);
  } catch (const Again::AllThere&) {  // what follows is not needed
  } catch (...) {
    state_ = State::kReady;
    throw;
  }
  state_ = State::kReady;
  if (again.taken() == saved_.size()) return;
  throw UsageError(fmt::format("a recomputed part saved {} tensors, but {} in its second run", saved_.size(),
                               again.taken()),
                   kRepeatHint);
}

torch::Tensor SavedTensors::unpack(size_t index) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kReady) {
    throw UsageError("a recomputed part runs a backward pass through what it has computed itself",
                     "leave that out of the part: call recompute() on what comes before and after");
  }
  const int backward = torch::autograd::get_current_graph_task_id();
  if (backward_ != backward) {
    run_again();
    backward_ = backward;
  }
  const auto& saved = saved_[index];
  if (saved.again._version() != saved.version) {
    throw UsageError(
        fmt::format("tensor {} that a recomputed part has saved, {}, was changed in place before "
                    "backward used it",
                    index, saved.is.text()),
        "use the operation that is not in place");
  }
  return saved.again;
}

void SavedTensors::release(size_t index) {
  const std::lock_guard lock(mutex_);
  saved_[index].released = true;
  saved_[index].again.reset();
}

}  // namespace recomputing

using recomputing::SavedTensors;

class RecomputedPart::Scope {
 public:
  explicit Scope(std::shared_ptr<SavedTensors> part) : part_(std::move(part)), saving_(*part_) {}
  ~Scope() { part_->end_first_run(); }

 private:
  const std::shared_ptr<SavedTensors> part_;
  const SavingWith saving_;
};

RecomputedPart::RecomputedPart(Run run, const Inputs& inputs, std::vector<torch::Tensor> buffers)
    : scope_((require_recompute(), TensorSaver::prepare(),
              std::make_unique<Scope>(
                  std::make_shared<SavedTensors>(std::move(run), inputs, std::move(buffers))))) {}

RecomputedPart::~RecomputedPart() = default;

}  // namespace lockstep
