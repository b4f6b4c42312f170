#include <lockstep/parallel/gradient_sync.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/or_end_all.h>
#include <lockstep/parallel/gradients/attached_module.h>
#include <lockstep/parallel/gradients/bucket_parts.h>
#include <lockstep/parallel/gradients/bucket_sizes.h>
#include <lockstep/parallel/gradients/buckets.h>
#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/parallel/gradients/gradient_rooms.h>
#include <lockstep/parallel/gradients/tensor_lines.h>
#include <lockstep/support/error.h>
#include <lockstep/support/torch_compat.h>

namespace lockstep {
namespace {

std::vector<std::string> option_lines(const GradientSyncOptions& options) {
  return {fmt::format("mode {}", name_of(kSyncModeNames, options.mode)),
          fmt::format("bucket_bytes {}", options.bucket_bytes),
          options.unused == UnusedParameters::kZero ? "UnusedParameters::kZero" : "UnusedParameters::kError",
          options.hook ? "a bucket hook" : "no bucket hook",
          fmt::format("shard {}", name_of(kShardNames, options.shard))};
}

}  // namespace

// Tells the sync that backward has completed a parameter's gradient. Autograd also calls it for an undefined
// one.
class GradientSync::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientSync& sync, int param) : sync_(sync), param_(param) {}
  void operator()(const torch::Tensor&) override { sync_.on_gradient(param_); }

 private:
  GradientSync& sync_;
  const int param_;
};

struct GradientSync::Nodes {
  std::vector<GradAccumulator> accumulators;
};

GradientSync::GradientSync(Endpoint& endpoint, GradientSyncOptions options, Trace* trace)
    : endpoint_(endpoint),
      options_(options),
      trace_(trace),
      place_(fmt::format("replica {}", endpoint.rank())),
      module_(std::make_unique<AttachedModule>()),
      gradients_(std::make_unique<FlatTensors>()),
      nodes_(std::make_unique<Nodes>()),
      parts_(std::make_unique<BucketParts>()) {}

GradientSync::~GradientSync() { detach(); }

torch::Tensor& GradientSync::flat_gradients() {
  if (!rooms_) return gradients_->flat;
  throw UsageError("flat_gradients() was called with shard gradients, where no rank has them all",
                   "read own_gradients() after wait(), or use Shard::kOptimizer");
}

torch::Tensor GradientSync::own_gradients(size_t bucket) const {
  if (rooms_) return rooms_->own(bucket);
  const auto own = parts_->own(bucket);
  return gradients_->flat.slice(0, own.begin, own.end);
}

const BucketParts& GradientSync::parts() const { return *parts_; }

const Params& GradientSync::parameters() const { return module_->trained(); }

const std::vector<std::string>& GradientSync::names() const { return module_->names(); }

// Also that the module is as attach() saw it.
void GradientSync::require_attached(const char* call) {
  if (!buckets_) {
    throw UsageError(fmt::format("{} was called before attach()", call), "attach the module first");
  }
  if (const auto change = module_->change()) fail(change->what, change->hint);
}

void GradientSync::attach(torch::nn::Module& module) {
  const bool again = buckets_ != nullptr;
  if (again && !module_->is(module)) {
    throw UsageError("this GradientSync is attached to a module already", "use one GradientSync per module");
  }
  if (paused_ > 0 || begun() || (again && holds_unsummed())) {
    fail("attach() was called between a backward pass and wait()",
         "call wait() first; or zero_grad(), if the gradients of micro-batches are to be dropped");
  }
  if (options_.shard != Shard::kNone && options_.hook) {
    fail("a bucket hook sums whole buckets, but the option shard leaves a part of them to each rank",
         "leave one of them out");
  }
  agree(endpoint_, "options", option_lines(options_), "give all GradientSyncs the same ones");
  if (again) {
    if (const auto change = module_->change_of_parameters()) fail(change->what, change->hint);
    agree_on_module(module, endpoint_);
    for (const auto& param : parameters()) {  // torch's optimizers step where there is a gradient
      if (!param.requires_grad()) param.mutable_grad().reset();
    }
    detach();
  } else {
    broadcast_module(module, endpoint_);
  }
  *module_ = AttachedModule(module);
  const auto& params = parameters();
  hold_gradients(params);
  for (size_t i = 0; i < params.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(params[i],
                                                   std::make_unique<Hook>(*this, static_cast<int>(i)));
    nodes_->accumulators.push_back(torch::autograd::impl::grad_accumulator(params[i]));
  }
}

// Plans the buckets, and makes the memory of zero gradients.
void GradientSync::hold_gradients(const Params& params) {
  const auto numels = numels_of(params);
  const auto element_size = c10::elementSize(c10::toRealValueType(params.front().scalar_type()));
  const auto buckets = plan_buckets(numels, static_cast<int64_t>(element_size), bucket_bounds(options_));
  buckets_ = std::make_unique<ReadyBuckets>(buckets);
  *parts_ = options_.shard == Shard::kNone || endpoint_.world_size() == 1
                ? BucketParts(flat_layout(numels).size, static_cast<int>(params.size()))
                : BucketParts(buckets, endpoint_.rank(), endpoint_.world_size());
  rooms_.reset();
  *gradients_ = {};
  if (options_.shard == Shard::kGradients && endpoint_.world_size() > 1) {
    rooms_ = std::make_unique<GradientRooms>(params, *parts_);
    for (const auto& param : params) param.mutable_grad().reset();
    return;
  }
  *gradients_ = flat_zeros_like(params);
  if (options_.hook) gaps_ = gaps_of(gradients_->flat, numels);
  for (size_t i = 0; i < params.size(); ++i) params[i].mutable_grad() = gradients_->views[i];
  dropped_ = false;
}

void GradientSync::detach() {
  for (const auto& param : parameters()) torch::autograd::impl::set_post_acc_grad_hooks(param, nullptr);
  nodes_->accumulators.clear();
  buckets_.reset();
  unsummed_ = false;
  *module_ = {};
}

void GradientSync::on_gradient(int param) {
  if (paused_ > 0) {
    unsummed_ = true;
    return;
  }
  const torch::NoGradGuard no_grad;  // backward(create_graph) runs hooks with autograd
  if (!dropped_) make_view(param);
  if (!buckets_->mark(param)) {
    const auto i = static_cast<size_t>(param);
    fail(
        fmt::format("the gradient of {} [{}], parameter {} of {} of {}, came twice before wait()", names()[i],
                    fmt::join(parameters()[i].sizes(), ", "), i + 1, names().size(), module_->type()),
        "call wait() after each backward pass that reaches the module, and hold a no_sync() during all that "
        "come before the last one of a step");
  }
  if (options_.mode == SyncMode::kOverlapped) post_ready_buckets();
}

void GradientSync::post_ready_buckets() {
  for (int b = buckets_->take_ready(); b >= 0; b = buckets_->take_ready()) {
    works_.push_back(post(b));
    if (options_.mode == SyncMode::kParameterwise) wait_for(works_.back());
  }
}

Work GradientSync::post(int bucket) {
  const auto& buckets = buckets_->buckets();
  const auto& range = buckets[static_cast<size_t>(bucket)];
  if (rooms_) return post_room(static_cast<size_t>(bucket));
  if (dropped_) take(static_cast<size_t>(range.first), static_cast<size_t>(range.last));
  const auto gradients = gradients_->flat.narrow(0, range.begin, range.end - range.begin);
  if (!parts_->whole()) {
    return endpoint_.reduce_scatter(gradients, parts_->bounds(static_cast<size_t>(bucket)));
  }
  if (!options_.hook) return endpoint_.allreduce_gradients(gradients);
  return or_end_all(endpoint_, [&] {  // code of a user
    return options_.hook(
        endpoint_, {.gradients = gradients, .index = bucket, .count = static_cast<int>(buckets.size())});
  });
}

// One bucket is summed at a time, while backward fills the next one.
Work GradientSync::post_room(size_t bucket) {
  if (!works_.empty()) wait_for(works_.back());
  return endpoint_.reduce_scatter(rooms_->room(bucket), parts_->bounds(bucket)).then([this, bucket] {
    rooms_->keep_part(bucket);
  });
}

void GradientSync::wait_for(Work& work) {
  or_end_all(endpoint_, [&] { work.wait(); });
}

bool GradientSync::begun() const { return buckets_ && buckets_->begun(); }

// Zeros are what an update leaves.
bool GradientSync::holds_unsummed() const {
  return unsummed_ && std::any_of(parameters().begin(), parameters().end(), [](const torch::Tensor& param) {
           const auto& grad = param.grad();
           return grad.defined() && (grad.layout() != torch::kStrided || grad.any().item<bool>());
         });
}

bool GradientSync::has_view(size_t param) const {
  const auto& grad = parameters()[param].grad();
  return grad.defined() && grad.layout() == torch::kStrided && grad.is_alias_of(gradients_->flat);
}

void GradientSync::restore_views() {
  if (rooms_) return;
  for (size_t i = 0; i < parameters().size(); ++i) {
    if (!has_view(i)) parameters()[i].mutable_grad() = gradients_->views[i];
  }
  dropped_ = false;
}

void GradientSync::drop_gradients() {
  if (rooms_) return;
  for (const auto& param : parameters()) param.mutable_grad().reset();
  dropped_ = true;
}

void GradientSync::take_gradients() {
  if (dropped_) take(0, parameters().size() - 1);
  dropped_ = false;
}

// Fills the views of parameters [first, last] that have none now. The tensors of autograd are freed.
void GradientSync::take(size_t first, size_t last) {
  Params views, given;
  for (size_t i = first; i <= last; ++i) {
    if (has_view(i)) continue;
    auto& grad = parameters()[i].mutable_grad();
    views.push_back(gradients_->views[i]);
    given.push_back(std::exchange(grad, gradients_->views[i]));
  }
  fill_views(views, given);
}

// zero_grad() may have dropped the view: then backward has left a tensor of its own, or none. So it has with
// backward(create_graph), whose gradients carry a graph, which is dropped here.
void GradientSync::make_view(int param) {
  const torch::NoGradGuard no_grad;
  const auto i = static_cast<size_t>(param);
  if (!rooms_ && has_view(i)) return;
  auto& grad = parameters()[i].mutable_grad();
  if (grad.defined() && grad.layout() != torch::kStrided) {
    fail(
        fmt::format("the gradient of {} is sparse, but gradients are summed in one dense buffer", names()[i]),
        "make it dense: an embedding does with EmbeddingOptions::sparse(false)");
  }
  if (rooms_) return rooms_->take(i);
  grad.defined() ? gradients_->views[i].copy_(grad) : gradients_->views[i].zero_();
  grad = gradients_->views[i];
}

void GradientSync::fail(const std::string& what, const std::string& hint) {
  const UsageError error(fmt::format("{}: {}", place_, what), hint);
  endpoint_.abort(std::make_exception_ptr(error));  // otherwise the other replicas would wait for this one
  throw error;
}

}  // namespace lockstep
