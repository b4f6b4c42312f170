#include <lockstep/models/program/module_tree.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include <cstring>
#include <set>
#include <utility>

#include <lockstep/models/batch_norm.h>
#include <lockstep/models/program/convert_argument.h>

namespace lockstep::program {
namespace {

template <class Impl>
BoundNorm new_norm(const torch::nn::BatchNormOptions& options) {
  auto module = std::make_shared<Impl>(options);
  return {.module = module, .exchange = [norm = module.get()] { return norm->exchange(); }};
}

BoundNorm new_norm(const BatchNormUse& use, bool own_tensors, int64_t channels) {
  const auto options = torch::nn::BatchNormOptions(channels)
                           .eps(use.eps)
                           .momentum(use.momentum)
                           .affine(own_tensors && use.affine)
                           .track_running_stats(own_tensors && use.averages);
  if (use.dimensions == 4) return new_norm<BatchNorm2dImpl>(options);
  if (use.dimensions == 5) return new_norm<BatchNorm3dImpl>(options);
  return new_norm<BatchNorm1dImpl>(options);
}

class Tree {
 public:
  Tree(torch::nn::Module& root, const Program::Parts& parts) : root_(root), parts_(parts) {
    for (const auto* graph : graphs()) {
      for (const auto& use : graph->resolved.norms) {
        if (use.matched) uses_.emplace(use.module, &use);
      }
    }
  }

  ModuleTree grow() {
    ModuleTree tree;
    for (const auto& tensor : parts_.tensors) tree.tensors.push_back(add(tensor));
    tree.training_norms = norms_of(parts_.training);
    if (parts_.own_evaluation) tree.evaluation_norms = norms_of(*parts_.own_evaluation);
    return tree;
  }

 private:
  std::vector<const ProgramGraph*> graphs() const {
    std::vector<const ProgramGraph*> all{&parts_.training};
    if (parts_.own_evaluation) all.push_back(&*parts_.own_evaluation);
    return all;
  }

  // The module of this name, which is made with those above it if it is new. Empty: the root.
  torch::nn::Module& module(const std::string& name) {
    if (name.empty()) return root_;
    if (const auto found = modules_.find(name); found != modules_.end()) return *found->second;
    const auto dot = name.rfind('.');
    auto& parent = module(dot == name.npos ? "" : name.substr(0, dot));
    auto own = new_module(name);
    parent.register_module(name.substr(dot + 1), own);  // of npos, the whole name
    return *modules_.emplace(name, std::move(own)).first->second;
  }

  std::shared_ptr<torch::nn::Module> new_module(const std::string& name) {
    const auto use = uses_.find(name);
    if (use == uses_.end()) return std::make_shared<torch::nn::Module>();
    auto norm = new_norm(*use->second, /*own_tensors=*/true, channels_of(name));
    norms_.emplace(name, norm);
    return norm.module;
  }

  // 1 for a batch norm without tensors: nobody looks at it.
  int64_t channels_of(const std::string& name) const {
    for (const char* tensor : {".weight", ".running_mean"}) {
      const auto place = parts_.places.find(name + tensor);
      if (place == parts_.places.end()) continue;
      const auto& sizes = parts_.tensors[place->second].stored.meta.sizes;
      if (sizes.size() == 1) return sizes[0].number;
    }
    return 1;
  }

  torch::Tensor add(const ModuleTensor& tensor) {
    const auto& [name, record, is_parameter, meta] = tensor.stored;
    const auto dot = name.rfind('.');
    auto& owner = module(dot == name.npos ? "" : name.substr(0, dot));
    const auto leaf = name.substr(dot + 1);
    auto value = read_stored(*parts_.file.archive, tensor.stored);
    if (dot != name.npos && norms_.contains(name.substr(0, dot))) {
      const auto own_tensors = is_parameter ? owner.named_parameters(false) : owner.named_buffers(false);
      if (const auto* own = own_tensors.find(leaf)) {
        auto registered = *own;
        registered.set_data(value);
        if (is_parameter) registered.set_requires_grad(meta.requires_grad);
        return registered;
      }
    }
    if (is_parameter) return owner.register_parameter(leaf, std::move(value), meta.requires_grad);
    return owner.register_buffer(leaf, std::move(value));
  }

  std::vector<BoundNorm> norms_of(const ProgramGraph& graph) {
    std::vector<BoundNorm> norms;
    for (const auto& use : graph.resolved.norms) {
      if (use.matched) module(use.module);
      const auto found = use.matched ? norms_.find(use.module) : norms_.end();
      norms.push_back(found == norms_.end() ? without_tensors(use) : found->second);
    }
    return norms;
  }

  BoundNorm without_tensors(const BatchNormUse& use) {
    auto norm = new_norm(use, /*own_tensors=*/false, 1);
    const auto name = [&] { return fmt::format("batch_norm_{}", unnamed_norms_); };
    do {
      ++unnamed_norms_;
    } while (modules_.contains(name()) || uses_.contains(name()) || parts_.places.contains(name()));
    root_.register_module(name(), norm.module);
    return norm;
  }

  torch::nn::Module& root_;
  const Program::Parts& parts_;
  std::map<std::string, const BatchNormUse*> uses_;  // by the module
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules_;
  std::map<std::string, BoundNorm> norms_;
  int unnamed_norms_ = 0;
};

}  // namespace

std::vector<int64_t> numbers_of(const std::vector<Size>& sizes) {
  std::vector<int64_t> all;
  for (const auto& size : sizes) all.push_back(size.number);
  return all;
}

torch::Tensor read_stored(const Archive& archive, const StoredTensor& stored) {
  const auto bytes = archive.bytes(stored.record);
  const auto type = scalar_type(stored.meta.dtype);
  const auto count = static_cast<int64_t>(bytes.size() / c10::elementSize(type));
  auto storage = torch::empty({count}, type);
  if (count > 0) std::memcpy(storage.data_ptr(), bytes.data(), storage.nbytes());
  // No view for autograd: autocast keeps no casts of views, so each use of a weight would cast it anew.
  const at::AutoDispatchBelowADInplaceOrView no_view;
  const auto view = storage.as_strided(numbers_of(stored.meta.sizes), numbers_of(stored.meta.strides),
                                       stored.meta.storage_offset.number);
  return view.is_contiguous() && view.numel() == count ? view : view.clone(torch::MemoryFormat::Preserve);
}

ModuleTree grow_modules(torch::nn::Module& root, const Program::Parts& parts) {
  return Tree(root, parts).grow();
}

}  // namespace lockstep::program
