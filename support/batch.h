// Rows of a batch: named tensors in a fixed order, whose first dimension counts the rows.
#pragma once

#include <c10/util/SmallVector.h>
#include <torch/types.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Floating-point and complex inputs follow the precision of a Trainer. Targets, and inputs of other types
// such as token ids and masks, keep theirs.
enum class Role { kInput, kTarget };

// A tensor of a batch, before there is one.
struct TensorSpec {
  std::string name = {};
  torch::ScalarType dtype = torch::kFloat32;
  std::vector<int64_t> row_shape =
      {};  // without the dimension of rows; -1: a size that differs between batches
  Role role = Role::kInput;

  bool operator==(const TensorSpec&) const = default;
};

// The tensors of a batch, in its order. Names differ.
using BatchSpec = std::vector<TensorSpec>;

// "images Float [n, 1, 28, 28]", or with a role "target labels Long [n]".
std::string to_string(const TensorSpec& spec);

// The same names, types and roles: what a loss depends on.
bool alike(const BatchSpec& a, const BatchSpec& b);

// A copy shares the tensors.
class Batch {
 public:
  struct Item {
    std::string name;
    torch::Tensor tensor;
    Role role = Role::kInput;
  };

  Batch() = default;

  // Has these tensors: Batch({{"features", X}, {"price", y, Role::kTarget}}). Throws UsageError when a name
  // comes twice, and when the tensors do not have one number of rows.
  Batch(std::initializer_list<Item> items);

  // Has one input and one target, named "input" and "target".
  Batch(const torch::Tensor& input, const torch::Tensor& target);

  // Has tensors that are yet to be written, such as by BatchSource::gather().
  explicit Batch(std::shared_ptr<const BatchSpec> spec);

  // Tensors by their place in the spec. Writable, for a source of rows.
  size_t size() const { return tensors_.size(); }
  const torch::Tensor& operator[](size_t i) const& { return tensors_[i]; }
  torch::Tensor& operator[](size_t i) & { return tensors_[i]; }
  torch::Tensor operator[](size_t i) && { return std::move(tensors_[i]); }

  // Throws UsageError for an unknown name; the error lists the names.
  const torch::Tensor& operator[](std::string_view name) const&;
  torch::Tensor operator[](std::string_view name) && { return std::as_const(*this)[name]; }

  // The one tensor with this role. Throws UsageError if there is none or more than one; the error lists the
  // names.
  const torch::Tensor& input() const& { return only(Role::kInput); }
  torch::Tensor input() && { return only(Role::kInput); }
  const torch::Tensor& target() const& { return only(Role::kTarget); }
  torch::Tensor target() && { return only(Role::kTarget); }

  // 0 without tensors.
  int64_t rows() const;
  const BatchSpec& spec() const& { return *spec_; }
  BatchSpec spec() && { return *spec_; }

  // The tensors that convert(tensor, spec) gives for these, with the same names and roles.
  template <class Convert>
  Batch converted(const Convert& convert) const {
    Batch other;
    other.spec_ = spec_;
    for (size_t i = 0; i < size(); ++i) other.tensors_.push_back(convert(tensors_[i], (*spec_)[i]));
    return other;
  }

  // `count` rows from `begin` on, as views.
  Batch narrow(int64_t begin, int64_t count) const;
  Batch to(torch::Device device) const;

 private:
  const torch::Tensor& only(Role role) const;
  void set(BatchSpec spec);

  std::shared_ptr<const BatchSpec> spec_ = no_tensors();
  c10::SmallVector<torch::Tensor, 4> tensors_;  // no allocation for up to four

  static const std::shared_ptr<const BatchSpec>& no_tensors();
};

}  // namespace lockstep
