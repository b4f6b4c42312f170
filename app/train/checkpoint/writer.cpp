#include <lockstep/app/train/checkpoint/writer.h>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/app/run_files/low_priority.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

int64_t bytes_of(const TrainState& state) {
  int64_t bytes = 0;
  const auto add = [&](const std::vector<NamedTensor>& tensors) {
    for (const auto& named : tensors) bytes += static_cast<int64_t>(named.tensor.nbytes());
  };
  add(state.model);
  add(state.optimizer);
  add(state.average);
  for (const auto& replica : state.replicas) add(replica.buffers);
  return bytes;
}

}  // namespace

CheckpointWriter::CheckpointWriter(RunFolder run, WriterOptions options)
    : run_(std::move(run)), options_(std::move(options)), thread_(lower_priority) {}

CheckpointWriter::~CheckpointWriter() {
  if (under_way_.valid()) under_way_.wait();
}

void CheckpointWriter::save(RunState state, std::optional<double> score, Stopwatch began) {
  std::exception_ptr failed;
  try {
    finish();
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  auto task = std::make_shared<std::packaged_task<void()>>(
      [this, state = std::move(state), score, waited = began.lap()]() mutable {
        write(std::move(state), score, waited);
      });
  under_way_ = task->get_future();
  thread_.post([task] { (*task)(); });
  if (failed) std::rethrow_exception(failed);
}

void CheckpointWriter::finish() {
  if (!under_way_.valid()) return;
  try {
    under_way_.get();
  } catch (const OutputError& error) {
    if (options_.on_error == OnSaveError::kStop) throw;
    warn(fmt::format("{}; the run goes on without this checkpoint", error.message()));
  }
}

void CheckpointWriter::write(RunState state, std::optional<double> score, double waited) {
  Stopwatch watch;
  CheckpointCost cost{.step = state.trainer.steps, .tensor_bytes = bytes_of(state.trainer), .waited = waited};
  const auto step = state.trainer.steps;
  const auto before = run_.best_score();
  const bool best = score && (!before || *score > *before);
  const auto path = run_.checkpoint(step);
  if (options_.before) options_.before();
  write_checkpoint(path, to_checkpoint(std::move(state)));
  link_checkpoint(path, kLastLink);
  if (best) link_checkpoint(path, kBestLink);
  written_ = step;
  cost.wrote = watch.lap();
  if (options_.written) options_.written(cost);
  remove_old();
}

void CheckpointWriter::remove_old() const {
  std::error_code ignored;
  const auto best = fs::read_symlink(run_.checkpoints() / kBestLink, ignored);
  auto steps = run_.steps();
  const auto keep = static_cast<size_t>(options_.keep);
  if (steps.size() <= keep) return;
  steps.resize(steps.size() - keep);
  for (const auto step : steps) {
    if (run_.checkpoint(step).filename() != best) remove_checkpoint(run_.checkpoint(step));
  }
}

}  // namespace lockstep
