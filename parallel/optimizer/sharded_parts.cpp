// Steps of a ShardedOptimizer: which rank updates what, and how all get it.
#include <lockstep/parallel/optimizer/sharded_parts.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/adagrad.h>

#include <algorithm>
#include <bit>
#include <set>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kCheckedOnGpus = 256;  // every so many steps

}  // namespace

ShardedOptimizer::Parts::Parts(std::unique_ptr<torch::optim::Optimizer> given,
                               const ShardedOptimizerOptions& options)
    : optimizer(std::move(given)), bucket_bytes(options.bucket_bytes) {
  take_params();
}

// Parameters that have come into the groups since the last call.
void ShardedOptimizer::Parts::take_params() {
  std::set<const void*> slices, params;
  for (const auto& slot : slots) {
    params.insert(slot.param.unsafeGetTensorImpl());
    if (slot.sliced && key_of(slot).defined()) slices.insert(key_of(slot).unsafeGetTensorImpl());
  }
  auto& groups = optimizer->param_groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& held = groups[g].params();
    Params own;
    for (size_t i = 0; i < held.size(); ++i) {
      if (slices.contains(held[i].unsafeGetTensorImpl())) {
        own.push_back(held[i]);
        continue;
      }
      slots.push_back({.param = held[i], .group = g});
      if (params.insert(held[i].unsafeGetTensorImpl()).second) continue;
      throw UsageError(fmt::format("{} is given twice", text_of(slots.size() - 1)),
                       "give the optimizer each parameter once: LibTorch's parameters() lists tied weights "
                       "twice, GradientSync::parameters() once");
    }
    held = std::move(own);
  }
  in_groups_ = slices.size();
  shrink_new_states();
}

// Adagrad makes the states of whole parameters when it is built, all elements alike: one will do.
void ShardedOptimizer::Parts::shrink_new_states() {
  for (const auto& slot : slots) {
    const auto found = optimizer->state().find(slot.param.unsafeGetTensorImpl());
    if (slot.sliced || found == optimizer->state().end()) continue;
    auto* state = dynamic_cast<torch::optim::AdagradParamState*>(found->second.get());
    if (!state || state->step() != 0 || state->sum().numel() < 2) continue;
    const auto first = state->sum().flatten()[0].clone();
    if ((state->sum() == first).all().item<bool>()) state->sum(first.expand_as(slot.param));
  }
}

void ShardedOptimizer::Parts::zero_grad(bool set_to_none) {
  for (const auto& slot : slots) {
    auto& grad = slot.param.mutable_grad();
    if (!grad.defined()) continue;
    grad.detach_();
    if (set_to_none) {
      grad.reset();
    } else {
      grad.zero_();
    }
  }
}

void ShardedOptimizer::Parts::step(Endpoint& endpoint) {
  require_same_rank(endpoint);
  size_t held = 0;
  for (const auto& group : optimizer->param_groups()) held += group.params().size();
  if (held != in_groups_) take_params();
  std::vector<size_t> unplaced;
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto& grad = slots[i].param.grad();
    if (!grad.defined()) continue;
    if (grad.layout() != torch::kStrided) {
      throw UsageError(fmt::format("the gradient of {} is sparse, but it is cut into parts", text_of(i)),
                       "make it dense: an embedding does with EmbeddingOptions::sparse(false)");
    }
    if (!slots[i].sliced) unplaced.push_back(i);
  }
  if (steps_ == 0) agree_on_kind(endpoint);
  const auto own = report(endpoint.device());
  const auto all = torch::empty({endpoint.world_size(), own.numel()}, own.options());
  auto telling = endpoint.all_gather(own, all);
  const auto require_alike = [&] {
    telling.wait();
    require_same_reports(all.cpu());
  };
  if (!unplaced.empty()) {
    require_alike();
    place(unplaced, endpoint);
  }
  update(endpoint);
  if (endpoint.device().is_cpu() || steps_ % kCheckedOnGpus == 0) require_alike();
  telling.wait();
  ++steps_;
}

// While one bucket is fetched the next one is updated.
void ShardedOptimizer::Parts::update(Endpoint& endpoint) {
  for (auto& sliced : placed) {
    if (const auto other = sliced.follow()) {
      const auto found = std::ranges::find_if(
          slots, [&](const Slot& slot) { return slot.sliced == &sliced && slot.at == *other; });
      throw UsageError(fmt::format("{} has another shape, dtype, device or memory format than in the first "
                                   "step",
                                   text_of(static_cast<size_t>(found - slots.begin()))),
                       "convert and move modules before the first step; afterwards write in place");
    }
  }
  for (auto& sliced : placed) {
    for (size_t b = 0; b < sliced.buckets(); ++b) {
      if (update(sliced, b)) sliced.start_fetch(b, endpoint);
    }
    sliced.finish_fetches();
  }
}

// Updates the own slices of a bucket: torch's optimizers leave out what has no gradient. Returns true if some
// rank updates some.
bool ShardedOptimizer::Parts::update(const SlicedParams& sliced, size_t bucket) {
  bool updates = false, updates_own = false;
  for (size_t i = sliced.first(bucket); i < sliced.end(bucket); ++i) {
    const auto& grad = sliced.params()[i].grad();
    if (!grad.defined()) continue;
    updates = true;
    if (!sliced.slice(i).defined()) continue;
    sliced.slice(i).mutable_grad() = sliced.elements(i, grad.data());
    updates_own = true;
  }
  if (updates_own) optimizer->step();
  for (size_t i = sliced.first(bucket); i < sliced.end(bucket); ++i) {
    if (sliced.slice(i).defined()) sliced.slice(i).mutable_grad().reset();
  }
  return updates;
}

void ShardedOptimizer::Parts::place(const std::vector<size_t>& numbers, Endpoint& endpoint) {
  require_usable(numbers, endpoint);
  agree_to_place(numbers, endpoint);
  std::vector<torch::ScalarType> types;
  for (const auto i : numbers) {
    const auto type = slots[i].param.scalar_type();
    if (std::ranges::find(types, type) == types.end()) types.push_back(type);
  }
  for (const auto type : types) {
    std::vector<size_t> alike;
    Params params;
    for (const auto i : numbers) {
      if (slots[i].param.scalar_type() != type) continue;
      alike.push_back(i);
      params.push_back(slots[i].param);
    }
    auto& sliced = placed.emplace_back(std::move(params), bucket_bytes, endpoint);
    for (size_t at = 0; at < alike.size(); ++at) {
      auto& slot = slots[alike[at]];
      const auto whole = own_state(slot);
      optimizer->state().erase(slot.param.unsafeGetTensorImpl());
      slot.sliced = &sliced;
      slot.at = at;
      if (!sliced.slice(at).defined()) continue;
      optimizer->param_groups()[slot.group].params().push_back(sliced.slice(at));
      ++in_groups_;
      if (!whole.empty()) take_whole_state(slot, whole, own_values);
    }
  }
}

// They lie in memory of their own, whose elements can be cut in one order.
void ShardedOptimizer::Parts::require_usable(const std::vector<size_t>& numbers,
                                             const Endpoint& endpoint) const {
  for (const auto i : numbers) {
    const auto& param = slots[i].param;
    if (param.device() != endpoint.device()) {
      throw UsageError(fmt::format("{} is on {}, but its replica on {}", text_of(i), param.device().str(),
                                   endpoint.device().str()),
                       "move the module to the replica's device, as attach() of Replicas does");
    }
    if (param.layout() == torch::kStrided && param.is_non_overlapping_and_dense()) continue;
    throw UsageError(
        fmt::format(
            "{} has gaps in its memory, strides [{}]", text_of(i),
            param.layout() == torch::kStrided ? fmt::format("{}", fmt::join(param.strides(), ", ")) : "none"),
        "register contiguous parameters, such as a clone() of the view");
  }
  std::vector<std::pair<uintptr_t, size_t>> begins;
  for (size_t i = 0; i < slots.size(); ++i) {
    const bool used = slots[i].sliced || std::ranges::find(numbers, i) != numbers.end();
    if (used && slots[i].param.numel() > 0)
      begins.emplace_back(std::bit_cast<uintptr_t>(slots[i].param.const_data_ptr()), i);
  }
  std::ranges::sort(begins);
  for (size_t i = 1; i < begins.size(); ++i) {
    const auto [begin, number] = begins[i - 1];
    if (begin + slots[number].param.nbytes() <= begins[i].first) continue;
    throw UsageError(fmt::format("{} and {} are two parameters in the same memory", text_of(number),
                                 text_of(begins[i].second)),
                     "to tie weights register one module, or one parameter, under both names");
  }
}

std::string ShardedOptimizer::Parts::text_of(size_t slot) const {
  const auto& own = slots[slot];
  const auto number = std::count_if(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(slot),
                                    [&](const Slot& other) { return other.group == own.group; });
  return fmt::format("parameter {} of group {} ({} [{}])", number, own.group,
                     torch::toString(own.param.scalar_type()), fmt::join(own.param.sizes(), ", "));
}

}  // namespace lockstep
