// wait() and allreduce_all() of gradient_sync.h, and what they require of the backward pass.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/gradients/attached_module.h>
#include <lockstep/parallel/gradients/buckets.h>
#include <lockstep/parallel/gradients/gradient_rooms.h>
#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

void GradientSync::wait() {
  require_attached("wait()");
  if (paused_ > 0) {
    fail("wait() was called while a no_sync() is alive",
         "let it end before the backward pass of the step's last micro-batch");
  }
  const auto missing = buckets_->missing();
  require_views(missing);
  if (options_.unused == UnusedParameters::kError) require_all(missing);
  for (const int param : missing) {
    make_view(param);
    buckets_->mark(param);
  }
  post_and_wait();
}

// A summed gradient reaches the optimizer through its view.
void GradientSync::require_views(const std::vector<int>& missing) {
  if (rooms_ || dropped_) return;
  for (size_t i = 0; i < parameters().size(); ++i) {
    if (has_view(i) || std::find(missing.begin(), missing.end(), static_cast<int>(i)) != missing.end())
      continue;
    fail(fmt::format("the gradient of {} was dropped or replaced between backward and wait()", names()[i]),
         "until wait() returns the gradients belong to it: call zero_grad(), and clip or change them, after "
         "it");
  }
}

void GradientSync::require_all(const std::vector<int>& missing) {
  if (missing.empty()) return;
  if (missing.size() == names().size()) {
    fail("no backward pass outside a no_sync() has reached a parameter since attach() or the last wait()",
         "call wait() once after each step's last backward(); without one call allreduce_all(), or take "
         "gradients as zeros with UnusedParameters::kZero");
  }
  std::vector<std::string> unreached;
  for (const int i : missing) unreached.push_back(names()[static_cast<size_t>(i)]);
  fail(
      fmt::format("backward reached {} of {} parameters; no gradient for {}", names().size() - missing.size(),
                  names().size(), fmt::join(unreached, ", ")),
      "on every replica the loss must depend on every parameter; freeze the others with "
      "requires_grad_(false) before attach(), or take their gradients as zeros with UnusedParameters::kZero");
}

void GradientSync::allreduce_all() {
  require_attached("allreduce_all()");
  for (size_t i = 0; i < parameters().size(); ++i) {
    make_view(static_cast<int>(i));
    buckets_->mark(static_cast<int>(i));
  }
  post_and_wait();
}

void GradientSync::post_and_wait() {
  const Trace::Span span(trace_, "wait for gradients", endpoint_.rank());
  const torch::NoGradGuard no_grad;  // hooks run without autograd, as they do in a backward pass
  post_ready_buckets();
  for (auto& work : works_) wait_for(work);
  if (!gaps_.empty()) torch::_foreach_zero_(gaps_);
  works_.clear();
  buckets_->reset();
  unsummed_ = dropped_ = false;
}

}  // namespace lockstep
