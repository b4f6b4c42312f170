#include <lockstep/parallel/training/model_errors.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <typeinfo>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

// Out of memory, no more threads, a fault of a GPU.
bool explained_elsewhere(const std::exception& error, std::string_view words) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error)) return true;
  if (dynamic_cast<const c10::AcceleratorError*>(&error)) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return true;
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return (system && is_no_thread(*system)) || is_out_of_host_memory(words);
}

ErrorText hint_of(std::string_view words) {
  if (words.find("more than 1 value per channel") == words.npos) return "";
  return "a batch norm in training needs two rows on each replica: use larger batches, fewer replicas or "
         "fewer micro-batches, or leave a small last batch out; with " +
         NamedOption{"bn", "sync", "BnPolicy::kSync"} + " the whole batch needs two";
}

// Errors end without a full stop.
std::string trimmed(std::string words) {
  words.erase(words.find_last_not_of(". \n") + 1);
  return words;
}

constexpr const char* kLossHint = "a loss is one number: the sum over the rows, such as loss.sum()";
constexpr const char* kCountHint =
    "top1 and top5 are each one number; a model that counts nothing sets torch::zeros({}, ...) on the "
    "rows' device";

struct Fault {
  std::string what, hint;
};

std::optional<Fault> fault_of_number(const char* name, const torch::Tensor& number, torch::Device device,
                                     const char* hint) {
  if (!number.defined()) return Fault{fmt::format("the outcome has no {}", name), hint};
  if (number.dim() != 0) {
    return Fault{fmt::format("the outcome's {} has the shape [{}] instead of []", name,
                             fmt::join(number.sizes(), ", ")),
                 hint};
  }
  if (number.device() == device) return std::nullopt;
  return Fault{
      fmt::format("the outcome's {} is on {}, the rows on {}", name, number.device().str(), device.str()),
      "compute it from the module's parameters and the rows, which are on one device"};
}

std::optional<Fault> fault_of(const Outcome& outcome, torch::Device device, bool trains) {
  if (auto fault = fault_of_number("loss", outcome.loss, device, kLossHint)) return fault;
  if (!outcome.loss.is_floating_point()) {
    return Fault{fmt::format("the outcome's loss is {} instead of floating point",
                             toString(outcome.loss.scalar_type())),
                 kLossHint};
  }
  if (trains && !outcome.loss.requires_grad()) {
    return Fault{"the outcome's loss requires no gradient",
                 "compute it from the module's parameters, without detach(), item() or a NoGradGuard"};
  }
  if (auto fault = fault_of_number("top1", outcome.top1, device, kCountHint)) return fault;
  return fault_of_number("top5", outcome.top5, device, kCountHint);
}

}  // namespace

void rethrow_at(const std::string& place) try { throw; } catch (const DataError& error) {
  const std::string_view text = error.message();
  // A type of the user's own stays. One with a rank is another replica's, which has ended a collective.
  if (typeid(error) != typeid(DataError) || text.starts_with("rank ")) throw;
  throw DataError(place + ": " + error.message_text(), error.hint_text());
} catch (const Error&) {
  throw;
} catch (const std::exception& error) {
  const auto words = words_of(error);
  if (explained_elsewhere(error, words)) throw;
  std::throw_with_nested(FailedError(fmt::format("{}: {}", place, trimmed(words)), hint_of(words)));
}

void require_rows(const Inputs& inputs, int64_t rows, const std::function<std::string()>& place) {
  for (const auto& [name, tensor] : {std::pair("X", &inputs.X), std::pair("y", &inputs.y)}) {
    if (tensor->defined() && tensor->dim() > 0 && tensor->size(0) == rows) continue;
    const auto given = !tensor->defined()   ? std::string("none")
                       : tensor->dim() == 0 ? std::string("one number")
                                            : std::to_string(tensor->size(0));
    throw UsageError(
        fmt::format("{}: the source was asked for {} rows, and gave {} in {}", place(), rows, given, name),
        "gather() writes each of the rows into X and y, in their order");
  }
}

void require_usable(const Outcome& outcome, torch::Device device, bool trains,
                    const std::function<std::string()>& place) {
  const auto fault = fault_of(outcome, device, trains);
  if (fault) throw UsageError(fmt::format("{}: {}", place(), fault->what), fault->hint);
}

}  // namespace lockstep
