#include <lockstep/parallel/training/graphs/captured_steps.h>

#include <fmt/format.h>

#include <utility>

#include <lockstep/parallel/recompute/refusal.h>
#include <lockstep/support/error.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

// Eager steps before the first capture: libraries set themselves up and choose their kernels, the optimizer
// makes its buffers, torch's allocator finds its sizes.
constexpr int kEagerSteps = 3;

}  // namespace

CapturedSteps::CapturedSteps(CaptureOptions options, StepParts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      enabled_(options_.mode != CudaGraph::kOff && StepGraph::available(options_.device)) {}

StepShape& CapturedSteps::shape_of(int64_t batch_rows,
                                   const std::vector<std::span<const int64_t>>& micro_batches) {
  std::vector<int64_t> key{batch_rows};
  for (const auto rows : micro_batches) key.push_back(static_cast<int64_t>(rows.size()));
  auto& shape = shapes_[key];
  shape.batch_rows = batch_rows;
  shape.rows.resize(micro_batches.size());
  shape.inputs.resize(micro_batches.size(), Batch(options_.batches));
  return shape;
}

void CapturedSteps::count_eager_step(StepShape& shape) {
  ++shape.eager_steps;
  ++eager_steps_;
}

std::optional<StepTimestamps> CapturedSteps::replay(StepShape& shape) {
  if (!captured(shape)) return std::nullopt;
  if (parts_.gather) parts_.gather(shape);
  StepTimestamps times{.data = StepTimestamps::now()};
  shape.graph->replay();
  times.compute = StepTimestamps::now();
  if (!options_.alone) parts_.sync();
  times.sync = StepTimestamps::now();
  if (!options_.alone) update_graph_->replay();
  if (!options_.alone && parts_.fetch) parts_.fetch();
  times.update = StepTimestamps::now();
  return times;
}

// Returns true if this shape has a graph. Captures it when its time has come.
bool CapturedSteps::captured(StepShape& shape) {
  if (!enabled_ || shape.inputs.empty()) return false;
  if (shape.graph) return true;
  if (shape.eager_steps == 0 || eager_steps_ < kEagerSteps) return false;
  try {
    capture(shape);
  } catch (const UsageError&) {  // an eager step would throw it, too
    throw;
  } catch (const std::exception& error) {
    const auto why = fmt::format("a step on {} cannot be captured as a CUDA graph: {}", options_.device.str(),
                                 words_of(error));
    if (options_.mode == CudaGraph::kOn) {
      const NamedOption automatic{"cuda_graph", "auto", "CudaGraph::kAuto"};
      const NamedOption off{"cuda_graph", "off", "CudaGraph::kOff"};
      throw FailedError(why, "use " + automatic + " or " + off);
    }
    if (options_.notice) options_.notice(why + "; it is queued kernel by kernel");
    enabled_ = false;
    drop_graphs();  // their memory is needed
  }
  return enabled_;
}

// Runs nothing on the GPU. All graphs have one memory pool in common: they are replayed one after the other.
void CapturedSteps::capture(StepShape& shape) {
  const StepGraph* other_graph = nullptr;
  for (const auto& [key, other] : shapes_) {
    if (other.graph) other_graph = other.graph.get();
  }
  const RecomputeRefused refused(refusal_under_capture());
  shape.graph = std::make_unique<StepGraph>([&] { parts_.compute(shape); }, other_graph);
  if (!options_.alone && !update_graph_) {
    update_graph_ = std::make_unique<StepGraph>(parts_.update, shape.graph.get());
  }
}

void CapturedSteps::drop_graphs() {
  for (auto& [key, shape] : shapes_) {
    shape.graph.reset();
    shape.eager_steps = 0;
  }
  update_graph_.reset();
  eager_steps_ = 0;
}

}  // namespace lockstep
