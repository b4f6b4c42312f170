#include <lockstep/app/bench/overlap/queues/dependent_matmuls.h>

#include <limits>

namespace lockstep {
namespace {

// Uniform in [0, 1/size), so that matrix products of results stay small.
torch::Tensor small_random(int64_t size, uint64_t seed, torch::Device device) {
  return random_matrix(size, seed, torch::kCPU).div_(static_cast<double>(size)).to(device);
}

}  // namespace

DependentMatmuls::DependentMatmuls(WorkQueue& first, WorkQueue& second, int64_t size, int64_t passes,
                                   uint64_t seed)
    : x_(small_random(size, seed, first.device())), y_(small_random(size, seed + 1, second.device())) {
  for (auto* on_first : {&a_, &c_, &d_, &f_}) *on_first = torch::empty_like(x_);
  for (auto* on_second : {&b_, &e_}) *on_second = torch::empty_like(y_);
  const bool apart = &first != &second;
  b_here_ = apart ? torch::empty_like(x_) : b_;
  e_here_ = apart ? torch::empty_like(x_) : e_;
  c_there_ = apart ? torch::empty_like(y_) : c_;
  fill_with_nan();
  for (int64_t pass = 0; pass < passes; ++pass) add_pass(first, second);
}

// The device that needs a tensor copies it. A pass may overwrite the tensors of the pass before, because it
// waits for its f, which depends on all its tasks.
void DependentMatmuls::add_pass(WorkQueue& first, WorkQueue& second) {
  using Tasks = std::vector<TaskGraph::Task>;
  const auto before = graph_.size() == 0 ? Tasks{} : Tasks{graph_.size() - 1};
  const bool apart = &first != &second;
  const auto fetch = [&](const char* name, WorkQueue& queue, TaskGraph::Task made, const torch::Tensor& to,
                         const torch::Tensor& from) {
    return apart ? graph_.add(name, queue, {made}, [to, from] { copy_bytes(to, from); }) : made;
  };
  const auto a = graph_.add("a = x x", first, before, [this] { at::mm_out(a_, x_, x_); });
  const auto b = graph_.add("b = y y", second, before, [this] { at::mm_out(b_, y_, y_); });
  const auto b_here = fetch("take b", first, b, b_here_, b_);
  const auto c = graph_.add("c = a + b", first, {a, b_here}, [this] { at::add_out(c_, a_, b_here_); });
  const auto c_there = fetch("take c", second, c, c_there_, c_);
  const auto d = graph_.add("d = a c", first, {a, c}, [this] { at::mm_out(d_, a_, c_); });
  const auto e = graph_.add("e = b c", second, {b, c_there}, [this] { at::mm_out(e_, b_, c_there_); });
  const auto e_here = fetch("take e", first, e, e_here_, e_);
  graph_.add("f = d + e", first, {d, e_here}, [this] { at::add_out(f_, d_, e_here_); });
}

void DependentMatmuls::fill_with_nan() {
  for (auto* tensor : {&a_, &c_, &d_, &f_, &b_here_, &e_here_, &b_, &e_, &c_there_}) {
    tensor->fill_(std::numeric_limits<float>::quiet_NaN());
  }
  // The fills are not in the queues, so wait for them here.
  if (!f_.is_cpu()) f_.flatten()[0].item();
  if (!e_.is_cpu()) e_.flatten()[0].item();
}

}  // namespace lockstep
