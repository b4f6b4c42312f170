// The state of a ShardedOptimizer, which is that of torch's optimizer on whole parameters.
#include <map>
#include <utility>

#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/parallel/optimizer/sharded_parts.h>
#include <lockstep/parallel/training/replica_state.h>

namespace lockstep {
namespace {

// A number of steps. Parameters are of other types.
bool counts_steps(const torch::Tensor& field) {
  return field.dim() == 0 && field.scalar_type() == torch::kInt64;
}

}  // namespace

struct ShardedOptimizer::Parts::Fields {
  std::vector<std::string> names;      // of a state that has all of them
  std::vector<bool> counts;            // whether it is a number of steps
  std::vector<bool> there;             // on some rank
  std::vector<torch::Tensor> tensors;  // undefined but where they are kept; counts everywhere
};

const torch::Tensor& ShardedOptimizer::Parts::key_of(const Slot& slot) const {
  return slot.sliced ? slot.sliced->slice(slot.at) : slot.param;
}

std::vector<NamedTensor> ShardedOptimizer::Parts::own_state(const Slot& slot) const {
  const auto& key = key_of(slot);
  if (!key.defined()) return {};
  const auto found = optimizer->state().find(key.unsafeGetTensorImpl());
  if (found == optimizer->state().end()) return {};
  return torch_state(optimizer->param_groups()[slot.group].options())->tensors(*found->second);
}

int64_t ShardedOptimizer::Parts::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& slot : slots) {
    for (const auto& item : own_state(slot)) {
      if (!counts_steps(item.tensor)) bytes += static_cast<int64_t>(item.tensor.storage().nbytes());
    }
  }
  return bytes;
}

void ShardedOptimizer::Parts::require_named(const NameOfParameter& name_of) const {
  for (const auto& slot : slots) name_of(slot.param);
}

// Each rank tells which fields it has, as bits, and its number of steps.
std::vector<ShardedOptimizer::Parts::Fields> ShardedOptimizer::Parts::told_fields(Endpoint& endpoint) const {
  std::vector<Fields> fields;
  const auto own = torch::zeros({static_cast<int64_t>(slots.size()), 2}, torch::kInt64);
  for (size_t i = 0; i < slots.size(); ++i) {
    auto& all = fields.emplace_back();
    const auto kind = torch_state(optimizer->param_groups()[slots[i].group].options());
    for (const auto& [name, tensor] : kind->like(torch::empty({0}, slots[i].param.options()))) {
      all.names.push_back(name);
      all.counts.push_back(counts_steps(tensor));
    }
    auto row = own[static_cast<int64_t>(i)];
    for (const auto& [name, tensor] : own_state(slots[i])) {
      const auto k = std::ranges::find(all.names, name) - all.names.begin();
      row[0] += int64_t{1} << k;
      if (counts_steps(tensor)) row[1] = tensor;
    }
  }
  const auto told = gather_tensors(own.to(endpoint.device()), endpoint).cpu();
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto rows = told.select(1, static_cast<int64_t>(i));
    int64_t bits = 0;
    for (int64_t rank = 0; rank < rows.size(0); ++rank) bits |= rows[rank][0].item<int64_t>();
    for (size_t k = 0; k < fields[i].names.size(); ++k) {
      fields[i].there.push_back((bits >> k & 1) != 0);
      fields[i].tensors.push_back(fields[i].counts[k] ? rows.select(1, 1).max() : torch::Tensor());
    }
  }
  return fields;
}

// One field of all parameters of the bucket after the other. `fields` are those of all slots.
void ShardedOptimizer::Parts::gather_fields(const SlicedParams& sliced, size_t bucket,
                                            std::vector<Fields>& fields, Endpoint& endpoint,
                                            const TensorAllocator* memory) const {
  std::vector<size_t> numbers(sliced.end(bucket) - sliced.first(bucket));  // of the slots
  size_t most = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto at = slots[i].at;
    if (slots[i].sliced != &sliced || at < sliced.first(bucket) || at >= sliced.end(bucket)) continue;
    numbers[at - sliced.first(bucket)] = i;
    most = std::max(most, fields[i].names.size());
  }
  for (size_t k = 0; k < most; ++k) {
    const auto gathers = [&](size_t slot) {
      const auto& all = fields[slot];
      return k < all.names.size() && all.there[k] && !all.counts[k];
    };
    if (std::ranges::none_of(numbers, gathers)) continue;
    Params own(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!gathers(numbers[i])) continue;
      for (const auto& [name, tensor] : own_state(slots[numbers[i]])) {
        if (name == fields[numbers[i]].names[k]) own[i] = tensor;
      }
    }
    const auto whole = sliced.gathered(bucket, own, endpoint);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!memory || !gathers(numbers[i])) continue;
      fields[numbers[i]].tensors[k] = host_copies({{"", whole[i]}}, *memory).front().tensor;
    }
  }
}

std::vector<NamedTensor> ShardedOptimizer::Parts::state(const NameOfParameter& name_of, Endpoint& endpoint,
                                                        const TensorAllocator* memory) {
  require_named(name_of);
  require_same_rank(endpoint);
  auto fields = told_fields(endpoint);
  for (const auto& sliced : placed) {
    for (size_t b = 0; b < sliced.buckets(); ++b) gather_fields(sliced, b, fields, endpoint, memory);
  }
  if (!memory) return {};
  std::vector<NamedTensor> result = {{"lr", rates_of(*optimizer)}};
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto name = name_of(slots[i].param);
    if (!slots[i].sliced) {
      for (const auto& [field, tensor] : host_copies(own_state(slots[i])))
        result.push_back({name_of_field(field, name), tensor});
      continue;
    }
    for (size_t k = 0; k < fields[i].names.size(); ++k) {
      if (fields[i].there[k])
        result.push_back({name_of_field(fields[i].names[k], name), fields[i].tensors[k]});
    }
  }
  return result;
}

void ShardedOptimizer::Parts::require(const std::vector<NamedTensor>& state, const NameOfParameter& name_of,
                                      const std::string& whose) const {
  GroupParams groups(optimizer->param_groups().size());
  for (const auto& slot : slots) groups[slot.group].push_back(slot.param);
  require_optimizer_state(*optimizer, groups, name_of, state, whose);
}

void ShardedOptimizer::Parts::take(const std::vector<NamedTensor>& state, const NameOfParameter& name_of,
                                   const ValuesOf& values, Endpoint& endpoint) {
  require_same_rank(endpoint);
  std::map<std::string, torch::Tensor> saved;
  for (const auto& [name, tensor] : state) saved.emplace(name, tensor);
  set_rates(*optimizer, values(saved.at("lr")));
  std::map<std::string, std::pair<size_t, std::vector<NamedTensor>>> by_name;  // slots, and their fields
  std::vector<size_t> unplaced;
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto name = name_of(slots[i].param);
    auto& [slot, fields] = by_name[name];
    slot = i;
    const auto kind = torch_state(optimizer->param_groups()[slots[i].group].options());
    for (const auto& like : kind->like(torch::empty({0}, slots[i].param.options()))) {
      const auto found = saved.find(name_of_field(like.name, name));
      if (found != saved.end()) fields.push_back({like.name, found->second});
    }
    if (key_of(slots[i]).defined()) optimizer->state().erase(key_of(slots[i]).unsafeGetTensorImpl());
    if (!slots[i].sliced && !fields.empty()) unplaced.push_back(i);
  }
  if (!unplaced.empty()) place(unplaced, endpoint);
  for (const auto& [name, own] : by_name) {
    if (!own.second.empty()) take_whole_state(slots[own.first], own.second, values);
  }
}

// Its slice of each field. All ranks ask for the values, also those that own nothing of them.
void ShardedOptimizer::Parts::take_whole_state(const Slot& slot, const std::vector<NamedTensor>& whole,
                                               const ValuesOf& values) {
  const auto& slice = key_of(slot);
  std::vector<NamedTensor> own;
  for (const auto& [name, saved] : whole) {
    const auto all = values(saved);
    if (!slice.defined()) continue;
    // A copy, since a view would keep the whole tensor while the next one comes.
    own.push_back({name, counts_steps(all) ? all : slot.sliced->elements(slot.at, all).clone()});
  }
  if (!slice.defined()) return;
  const auto kind = torch_state(optimizer->param_groups()[slot.group].options());
  optimizer->state()[slice.unsafeGetTensorImpl()] = kind->made_of(own, slice);
}

}  // namespace lockstep
