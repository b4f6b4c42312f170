#include <lockstep/models/program/operations.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/operation_names.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

constexpr std::string_view kAten = "torch.ops.aten.";

constexpr std::array<std::string_view, 34> kArithmetic{
    "_operator.add",    "_operator.sub",    "_operator.mul", "_operator.floordiv", "_operator.truediv",
    "_operator.mod",    "_operator.pow",    "_operator.neg", "_operator.pos",      "_operator.eq",
    "_operator.ne",     "_operator.lt",     "_operator.le",  "_operator.gt",       "_operator.ge",
    "_operator.and_",   "_operator.or_",    "torch.sym_not", "torch.sym_max",      "torch.sym_min",
    "torch.sym_float",  "torch.sym_int",    "torch.sym_ite", "torch.sym_sum",      "torch._sym_sqrt",
    "torch.sym_sqrt",   "math.trunc",       "math.ceil",     "math.floor",         "math.sqrt",
    "_operator.lshift", "_operator.rshift", "_operator.abs", "builtins.round"};

constexpr std::string_view kGradRegion = "torch.ops.higher_order.wrap_with_set_grad_enabled";
constexpr std::string_view kMetadataAssertion = "torch.ops.aten._assert_tensor_metadata.default";

// Operations that people meet, with what to do instead.
struct Advice {
  std::string_view begin, hint;
};
constexpr std::array kAdvice{
    Advice{"torch.ops.higher_order.cond", "replace torch.cond by torch.where, or by an argument of __init__"},
    Advice{"torch.ops.higher_order.wrap_with_autocast",
           "leave torch.autocast out of forward(); lockstep's precision is chosen when it trains"},
    Advice{"torch.ops.higher_order.",
           "lockstep runs torch.no_grad() and torch.enable_grad() regions, and no other"},
    Advice{"torch.ops.aten.native_batch_norm.", "call torch.nn.functional.batch_norm(), as layers do"},
    Advice{"torch.ops.aten.", "write it with operations of the list in docs/programs.md"},
    Advice{"torch.ops.", "custom operations exist in Python only: write it with torch's own"},
};

// "out" overloads may resize a tensor. F.normalize(), which spectral norms call, has one.
bool is_known_overload(std::string_view target, std::string_view overload) {
  return overload.find("out") == overload.npos || target == "torch.ops.aten.div.out";
}

}  // namespace

std::optional<TorchName> torch_name(std::string_view target) {
  if (!target.starts_with(kAten)) return std::nullopt;
  target.remove_prefix(kAten.size());
  const auto dot = target.find('.');
  if (dot == target.npos || dot + 1 == target.size()) return std::nullopt;
  return TorchName{target.substr(0, dot), target.substr(dot + 1)};
}

OperationKind operation_kind(std::string_view target) {
  if (target == kGradRegion) return OperationKind::kRegion;
  if (target == kMetadataAssertion) return OperationKind::kAssertion;
  if (std::ranges::find(kArithmetic, target) != kArithmetic.end()) return OperationKind::kArithmetic;
  const auto name = torch_name(target);
  if (name && is_known_operation(name->base) && is_known_overload(target, name->overload)) {
    return OperationKind::kTorch;
  }
  const auto advice =
      std::ranges::find_if(kAdvice, [&](const Advice& known) { return target.starts_with(known.begin); });
  throw FormatError(fmt::format("calls {}, which lockstep does not run", in_quotes(target)),
                    advice == kAdvice.end() ? std::string() : std::string(advice->hint));
}

bool changes_self(std::string_view base) {
  if (base == "__iand__" || base == "__ior__" || base == "__ixor__") return true;
  return base.ends_with('_') && !base.ends_with("__") && base != "requires_grad_";
}

bool may_be_view(std::string_view base) {
  // Dropout that is off returns what it is given.
  constexpr std::string_view kViews =
      " view view_as reshape reshape_as flatten unflatten ravel squeeze unsqueeze permute transpose "
      "t swapaxes swapdims movedim moveaxis numpy_T matrix_H mT mH adjoint expand expand_as "
      "broadcast_to narrow select slice split split_with_sizes tensor_split chunk unbind hsplit "
      "vsplit dsplit diagonal unfold as_strided to type_as contiguous detach alias real imag "
      "view_as_real positive conj _conj _neg_view resolve_conj resolve_neg view_as_complex "
      "linalg_diagonal lift lift_fresh _unsafe_view unsafe_chunk unsafe_split "
      "unsafe_split_with_sizes atleast_1d atleast_2d atleast_3d broadcast_tensors meshgrid dropout "
      "alpha_dropout feature_dropout feature_alpha_dropout einsum cartesian_prod chain_matmul conj_physical ";
  return kViews.find(fmt::format(" {} ", base)) != kViews.npos || changes_self(base);
}

}  // namespace lockstep::program
