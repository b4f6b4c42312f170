#include <lockstep/app/bench/overlap/dependent_matmuls.h>

#include <ATen/CPUGeneratorImpl.h>

#include <limits>

namespace lockstep {
namespace {

// Uniform in [0, 1/size): the products of products stay small.
torch::Tensor small_random(int64_t size, uint64_t seed, torch::Device device) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::rand({size, size}, random).div_(static_cast<double>(size)).to(device);
}

}  // namespace

DependentProducts::DependentProducts(WorkQueue& first, WorkQueue& second, int64_t size, int64_t passes,
                                     uint64_t seed)
    : x_(small_random(size, seed, first.device())), y_(small_random(size, seed + 1, second.device())) {
  for (auto* on_first : {&a_, &c_, &d_, &f_}) *on_first = torch::empty_like(x_);
  for (auto* on_second : {&b_, &e_}) *on_second = torch::empty_like(y_);
  const bool apart = &first != &second;
  b_here_ = apart ? torch::empty_like(x_) : b_;
  e_here_ = apart ? torch::empty_like(x_) : e_;
  c_there_ = apart ? torch::empty_like(y_) : c_;
  spoil();
  for (int64_t pass = 0; pass < passes; ++pass) add_pass(first, second);
}

// What travels is taken by the device that needs it. What a pass writes over has been read by then: every
// task of the pass before is an input of f, and the next pass begins behind that.
void DependentProducts::add_pass(WorkQueue& first, WorkQueue& second) {
  using Tasks = std::vector<TaskGraph::Task>;
  const auto before = graph_.size() == 0 ? Tasks{} : Tasks{graph_.size() - 1};
  const bool apart = &first != &second;
  const auto travel = [&](const char* name, WorkQueue& queue, TaskGraph::Task made, const torch::Tensor& to,
                          const torch::Tensor& from) {
    return apart ? graph_.add(name, queue, {made}, [to, from] { copy_bytes(to, from); }) : made;
  };
  const auto a = graph_.add("a = x x", first, before, [this] { at::mm_out(a_, x_, x_); });
  const auto b = graph_.add("b = y y", second, before, [this] { at::mm_out(b_, y_, y_); });
  const auto b_here = travel("take b", first, b, b_here_, b_);
  const auto c = graph_.add("c = a + b", first, {a, b_here}, [this] { at::add_out(c_, a_, b_here_); });
  const auto c_there = travel("take c", second, c, c_there_, c_);
  const auto d = graph_.add("d = a c", first, {a, c}, [this] { at::mm_out(d_, a_, c_); });
  const auto e = graph_.add("e = b c", second, {b, c_there}, [this] { at::mm_out(e_, b_, c_there_); });
  const auto e_here = travel("take e", first, e, e_here_, e_);
  graph_.add("f = d + e", first, {d, e_here}, [this] { at::add_out(f_, d_, e_here_); });
}

void DependentProducts::spoil() {
  for (auto* tensor : {&a_, &c_, &d_, &f_, &b_here_, &e_here_, &b_, &e_, &c_there_}) {
    tensor->fill_(std::numeric_limits<float>::quiet_NaN());
  }
  // Those fills are not in the queues: wait for them.
  if (!f_.is_cpu()) f_.flatten()[0].item();
  if (!e_.is_cpu()) e_.flatten()[0].item();
}

// The two graphs of the exercise: all on the first device, and its share of the one on two.
int64_t dependent_products_bytes(int64_t size) {
  constexpr int64_t kAlone = 8, kShare = 7;
  return (kAlone + kShare) * size * size * static_cast<int64_t>(sizeof(float));
}

}  // namespace lockstep
