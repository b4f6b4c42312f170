#include <lockstep/parallel/training/model_errors.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <typeinfo>
#include <utility>
#include <vector>

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
constexpr const char* kMetricHint = "a metric is one number for all rows, such as a sum(), on their device";

struct Fault {
  std::string what, hint;
};

// name: as in "the outcome has no top1". It is made into text for a fault alone.
std::optional<Fault> fault_of_number(std::string_view what, const std::string& name,
                                     const torch::Tensor& number, torch::Device device, const char* hint) {
  if (!number.defined()) return Fault{fmt::format("the outcome has no {}{}", what, name), hint};
  if (number.dim() != 0) {
    return Fault{fmt::format("the outcome's {}{} has the shape [{}] instead of []", what, name,
                             fmt::join(number.sizes(), ", ")),
                 hint};
  }
  if (number.device() == device) return std::nullopt;
  return Fault{fmt::format("the outcome's {}{} is on {}, the rows on {}", what, name, number.device().str(),
                           device.str()),
               "compute it from the module's parameters and the rows, which are on one device"};
}

std::optional<Fault> fault_of_loss(const torch::Tensor& loss, torch::Device device, bool trains) {
  static const std::string kName = "loss";
  if (auto fault = fault_of_number("", kName, loss, device, kLossHint)) return fault;
  if (!loss.is_floating_point()) {
    return Fault{
        fmt::format("the outcome's loss is {} instead of floating point", toString(loss.scalar_type())),
        kLossHint};
  }
  if (trains && !loss.requires_grad()) {
    return Fault{"the outcome's loss requires no gradient",
                 "compute it from the module's parameters, without detach(), item() or a NoGradGuard"};
  }
  return std::nullopt;
}

std::optional<Fault> fault_of_metric(const Metric& metric, const MetricKind& kind, torch::Device device) {
  if (auto fault = fault_of_number("", kind.name, metric.sum, device, kMetricHint)) return fault;
  const bool counts = kind.type == MetricType::kCount;
  const auto type = metric.sum.scalar_type();
  if (counts ? !at::isIntegralType(type, /*includeBool=*/false) : !metric.sum.is_floating_point()) {
    return Fault{fmt::format("the outcome's {} is {}, the model declares {}", kind.name, toString(type),
                             counts ? "a count" : "a mean"),
                 "a count's sum is an integer such as int64, any other floating point"};
  }
  if (kind.own_weight) return fault_of_number("weight of ", kind.name, metric.weight, device, kMetricHint);
  if (!metric.weight.defined()) return std::nullopt;
  return Fault{fmt::format("the outcome has a weight of {}, the model declares none", kind.name),
               "declare the metric with own_weight"};
}

std::string names_of(const std::vector<MetricKind>& metrics) {
  std::vector<std::string> names;
  for (const auto& kind : metrics) names.push_back(kind.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::optional<Fault> fault_of(const Outcome& outcome, const std::vector<MetricKind>& metrics,
                              torch::Device device, bool trains) {
  if (auto fault = fault_of_loss(outcome.loss, device, trains)) return fault;
  if (outcome.metrics.size() != metrics.size()) {
    return Fault{fmt::format("the outcome has {} metrics, the model declares {}", outcome.metrics.size(),
                             names_of(metrics)),
                 "give the model's metrics, in its order"};
  }
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (auto fault = fault_of_metric(outcome.metrics[i], metrics[i], device)) return fault;
  }
  return std::nullopt;
}

// How many rows a tensor that has not as many as it should does have.
std::string rows_text(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return tensor.dim() == 0 ? "one number" : std::to_string(tensor.size(0));
}

bool fits(const torch::Tensor& tensor, const TensorSpec& spec) {
  const auto sizes = tensor.sizes().slice(1);
  if (tensor.scalar_type() != spec.dtype || sizes.size() != spec.row_shape.size()) return false;
  return std::equal(sizes.begin(), sizes.end(), spec.row_shape.begin(),
                    [](int64_t size, int64_t wanted) { return wanted < 0 || size == wanted; });
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

void require_rows(const Batch& batch, const BatchSpec& spec, int64_t rows,
                  const std::function<std::string()>& place) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("{}: {}", place(), what),
                     "gather() writes each of the rows into the tensors of spec(), in their order");
  };
  if (batch.size() != spec.size()) {
    refuse(fmt::format("the source gave {} tensors, its spec has {}", batch.size(), spec.size()));
  }
  for (size_t i = 0; i < spec.size(); ++i) {
    const auto& tensor = batch[i];
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != rows) {
      refuse(fmt::format("the source was asked for {} rows, and gave {} in {}", rows, rows_text(tensor),
                         spec[i].name));
    }
    if (!fits(tensor, spec[i])) {
      refuse(fmt::format("the source gave {} as {} [{}], its spec has {}", spec[i].name,
                         toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                         to_string(spec[i])));
    }
  }
}

void require_alike(const BatchSpec& training, const BatchSpec& other, const std::string& name) {
  if (alike(training, other)) return;
  const auto text = [](const BatchSpec& spec) {
    std::vector<std::string> tensors;
    for (const auto& tensor : spec) tensors.push_back(to_string(tensor));
    return fmt::format("{}", fmt::join(tensors, ", "));
  };
  throw UsageError(fmt::format("the training set gives {}, {} {}", text(training), name, text(other)),
                   "one model takes both: give the same names, types and roles");
}

void require_usable(const Outcome& outcome, const std::vector<MetricKind>& metrics, torch::Device device,
                    bool trains, const std::function<std::string()>& place) {
  const auto fault = fault_of(outcome, metrics, device, trains);
  if (fault) throw UsageError(fmt::format("{}: {}", place(), fault->what), fault->hint);
}

void require_usable_output(const torch::Tensor& outputs, int64_t rows, torch::Device device,
                           const std::function<std::string()>& place) {
  const bool usable =
      outputs.defined() && outputs.dim() > 0 && outputs.size(0) == rows && outputs.device() == device;
  if (usable) return;
  const auto given = outputs.defined()
                         ? fmt::format("[{}] on {}", fmt::join(outputs.sizes(), ", "), outputs.device().str())
                         : std::string("undefined");
  throw UsageError(fmt::format("{}: the outputs of {} rows are {}", place(), rows, given),
                   "the first dimension of an output counts the rows, on whose device it is");
}

void require_usable_weight(const torch::Tensor& weight, torch::Device device,
                           const std::function<std::string()>& place) {
  const bool usable =
      weight.defined() && weight.dim() == 0 && weight.device() == device && !weight.is_complex();
  if (usable) return;
  const auto given = weight.defined() ? fmt::format("{} [{}] on {}", toString(weight.scalar_type()),
                                                    fmt::join(weight.sizes(), ", "), weight.device().str())
                                      : std::string("undefined");
  throw UsageError(fmt::format("{}: the weight of the rows is {}", place(), given),
                   "a weight is one number for all rows, such as a sum(), on their device");
}

}  // namespace lockstep
