#include <lockstep/parallel/training/prediction.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/gather_bytes.h>
#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/parallel/replicas/batch_rows.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/evaluated_blocks.h>
#include <lockstep/parallel/training/model_errors.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/parallel/training/step_history.h>
#include <lockstep/support/error.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

// The shape and dtype of a row of the outputs.
struct RowKind {
  std::vector<int64_t> shape;
  torch::ScalarType dtype = torch::kFloat32;

  bool operator==(const RowKind&) const = default;

  static RowKind of(const torch::Tensor& rows) {
    return {.shape = rows.sizes().slice(1).vec(), .dtype = rows.scalar_type()};
  }

  std::string text() const {
    return fmt::format("{} [n{}{}]", toString(dtype), shape.empty() ? "" : ", ", fmt::join(shape, ", "));
  }

  torch::Tensor zeros(int64_t rows, torch::Device device) const {
    auto sizes = shape;
    sizes.insert(sizes.begin(), rows);
    return torch::zeros(sizes, torch::dtype(dtype).device(device));
  }

  // A collective: that of rank 0, which has the first block.
  static RowKind of_first_rank(const torch::Tensor& own, Endpoint& endpoint) {
    std::vector<int64_t> numbers;
    if (endpoint.rank() == 0) {
      const auto kind = of(own);
      numbers.push_back(static_cast<int64_t>(kind.dtype));
      numbers.insert(numbers.end(), kind.shape.begin(), kind.shape.end());
    }
    const auto told = broadcast_bytes(torch::tensor(numbers, torch::kInt64).view(torch::kUInt8), endpoint);
    const auto found = told.view(torch::kInt64).contiguous();
    const auto* first = found.const_data_ptr<int64_t>();
    return {.shape = {first + 1, first + found.numel()}, .dtype = static_cast<torch::ScalarType>(*first)};
  }
};

// One rank's blocks of rows.
class RankPrediction {
 public:
  RankPrediction(const Model& model, const BatchSource& source, std::span<const int64_t> rows,
                 Precision precision, Endpoint& endpoint)
      : model_(model),
        endpoint_(endpoint),
        rows_(rows),
        blocks_{.rows = static_cast<int64_t>(rows.size()), .world = endpoint.world_size()},
        own_(model, source, precision, endpoint, "prediction") {}

  // Writes the outputs of all ranks into `all` on the host; null: another replica of this process does that.
  void run(torch::Tensor* all) {
    std::optional<RowKind> kind;
    for (int64_t round = 0; round < blocks_.most_per_rank(); ++round) {
      const auto first = round * blocks_.world;
      const auto outputs = outputs_of(first + endpoint_.rank());
      if (!kind) kind = RowKind::of_first_rank(outputs, endpoint_);
      auto padded = kind->zeros(blocks_.size(0), endpoint_.device());
      if (outputs.defined()) {
        require_kind(outputs, *kind);
        padded.narrow(0, 0, outputs.size(0)).copy_(outputs);
      }
      const auto gathered = gather_tensors(padded, endpoint_);
      if (!all) continue;
      if (!all->defined()) *all = kind->zeros(blocks_.rows, torch::kCPU);
      for (auto b = first; b < std::min(first + blocks_.world, blocks_.count()); ++b) {
        all->narrow(0, blocks_.begin(b), blocks_.size(b))
            .copy_(gathered[b - first].narrow(0, 0, blocks_.size(b)));
      }
    }
  }

 private:
  // Undefined where this rank has no such block.
  torch::Tensor outputs_of(int64_t block) {
    if (block >= blocks_.count()) return {};
    const auto numbers =
        rows_.subspan(static_cast<size_t>(blocks_.begin(block)), static_cast<size_t>(blocks_.size(block)));
    return own_.compute(block, numbers, [&](const Batch&, const Batch& converted) {
      auto outputs = model_.output(converted);
      require_usable_output(outputs, blocks_.size(block), endpoint_.device(),
                            [this] { return own_.place(); });
      return outputs.detach();
    });
  }

  void require_kind(const torch::Tensor& outputs, const RowKind& wanted) const {
    if (const auto own = RowKind::of(outputs); own != wanted) {
      throw UsageError(fmt::format("{}: the outputs are {}, those of the first block {}", own_.place(),
                                   own.text(), wanted.text()),
                       "all rows need outputs of one shape and type: pad them to one length, or predict "
                       "rows of each length on their own");
    }
  }

  const Model& model_;
  Endpoint& endpoint_;
  const std::span<const int64_t> rows_;
  const Blocks blocks_;
  EvaluatedBlocks own_;
};

void agree_on_rows(ProcessGroup* group, const Lines& lines) {
  agree(group, "rows to predict", lines, "give all processes the same model, data set and rows");
}

BatchSpec inputs_of(const BatchSpec& spec) {
  BatchSpec inputs;
  std::ranges::copy_if(spec, std::back_inserter(inputs),
                       [](const TensorSpec& tensor) { return tensor.role == Role::kInput; });
  return inputs;
}

}  // namespace

torch::Tensor predict(std::span<const Model> models,
                      std::span<const std::shared_ptr<const BatchSource>> sources,
                      std::span<const int64_t> rows, Precision precision, ReplicaWorkers& workers,
                      Communicator& communicator) {
  torch::Tensor all;
  workers.run(communicator, [&](int local, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(local);
    RankPrediction(models[i], *sources[i], rows, precision, endpoint).run(local == 0 ? &all : nullptr);
  });
  return all;
}

// All that can be wrong before a replica computes: every process throws it.
void Trainer::require_predictable(const BatchSource& data, std::span<const int64_t> rows) const {
  const auto spec = inputs_of(data.spec());
  const bool has_output = static_cast<bool>(models_.front().output);
  Lines lines{has_output ? "a model with an output" : "a model without an output",
              fmt::format("{} of {} rows, digest {:016x}", rows.size(), data.size(), batch_digest(rows))};
  for (const auto& tensor : spec) lines.push_back(to_string(tensor));
  agree_on_rows(options_.process_group.get(), lines);
  if (!has_output) {
    throw UsageError("the model has no output to predict",
                     "give its factory one, such as .output([](Net& net, const Batch& in) { return "
                     "net.forward(in[\"features\"]); })");
  }
  require_alike(inputs_of(train_sources_.front()->spec()), spec, "the data to predict");
  const auto outside = std::ranges::find_if(rows, [&](int64_t row) { return row < 0 || row >= data.size(); });
  if (outside == rows.end()) return;
  throw DataError(
      fmt::format("row {} does not exist: the data set has {} rows, from 0", *outside, data.size()));
}

torch::Tensor Trainer::predict(const SourceFactory& data, std::optional<std::span<const int64_t>> rows) {
  require_same_history(CommonCall::kPredict);
  Sources sources;
  try {
    if (!data) throw UsageError("the factory of the data to predict is empty", "such as resident_rows({X})");
    sources = sources_for(options_.devices, data);
  } catch (const std::exception& error) {  // the other processes wait for this one's rows
    agree_on_rows(options_.process_group.get(), {"no data: " + words_of(error)});
    throw;
  }
  std::vector<int64_t> all(rows ? 0 : static_cast<size_t>(sources.front()->size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto wanted = rows.value_or(all);
  require_predictable(*sources.front(), wanted);
  if (sources.front()->size() == 0) return torch::empty({0});
  constexpr int64_t kFirst[] = {0};  // tells the shape where no rows are wanted
  torch::Tensor outputs;
  with_shared_buffers(/*averaged=*/true, [&] {
    outputs = lockstep::predict(models_, sources, wanted.empty() ? kFirst : wanted,
                                options_.replica.precision, workers_, *communicator_);
  });
  return outputs.narrow(0, 0, static_cast<int64_t>(wanted.size()));
}

}  // namespace lockstep
