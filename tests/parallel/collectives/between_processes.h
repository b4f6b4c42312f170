// Helpers for tests of collectives between processes, which are threads of the test.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/support/thread_processes.h>

namespace lockstep::testing {

inline const std::vector<Layout> kLayouts{{1, 1}, {2, 2}, {3, 1}, {1, 3, 2}, {1, 1, 1, 1}};

// The part of one process. Of the options the devices and the group are set here.
inline std::unique_ptr<Communicator> communicator_of(const Layout& layout, int process, const Group& group,
                                                     CommunicatorOptions options = {}) {
  options.devices.assign(static_cast<size_t>(layout[static_cast<size_t>(process)]), torch::kCPU);
  options.process_group = group;
  return make_communicator(std::move(options));
}

// Runs task(process, its communicator) in every process; one alone has no group.
inline void in_processes(const Layout& layout, const std::function<void(int, Communicator&)>& task,
                         const CommunicatorOptions& options = {}) {
  run_processes(processes_of(layout), [&](int process, const Group& group) {
    task(process, *communicator_of(layout, process, group, options));
  });
}

// Replicas of one process by each algorithm, and of several processes.
struct Setup {
  Layout layout;
  Allreduce algorithm = Allreduce::kAuto;

  std::string text() const {
    return fmt::format("{} replicas, {}", text_of(layout), name_of(kAllreduceNames, algorithm));
  }
};

inline std::vector<Setup> setups_of(const std::vector<Layout>& alone,
                                    const std::vector<Layout>& several = kLayouts) {
  std::vector<Setup> setups;
  for (const auto algorithm : kAlgorithms) {
    for (const auto& layout : alone) setups.push_back({layout, algorithm});
  }
  for (const auto& layout : several) setups.push_back({layout});
  return setups;
}

// Floats that use all their bits, so that each sum is rounded: [rank][element].
using Numbers = std::vector<std::vector<float>>;

// exponents: how many sizes there are, from 2^23 x 2^least on.
inline Numbers rounded_numbers(int world, int64_t n, int least = 0, int exponents = 4) {
  std::mt19937 random(7);
  Numbers numbers(static_cast<size_t>(world), std::vector<float>(static_cast<size_t>(n)));
  for (auto& of_rank : numbers) {
    for (auto& number : of_rank) {
      const auto mantissa = static_cast<float>(random() % (1 << 24)) - (1 << 23);
      number = std::ldexp(mantissa, least + static_cast<int>(random() % static_cast<unsigned>(exponents)));
    }
  }
  return numbers;
}

inline Tensors tensors_of(const Numbers& numbers) {
  Tensors tensors;
  for (const auto& of_rank : numbers) tensors.push_back(torch::tensor(of_rank));
  return tensors;
}

// The sum of each process for one element, its replicas in the order of their ranks.
inline std::vector<float> sums_of_processes(const Numbers& numbers, const Layout& layout, size_t element) {
  std::vector<float> sums;
  size_t rank = 0;
  for (const int replicas : layout) {
    float sum = numbers[rank++][element];
    for (int replica = 1; replica < replicas; ++replica) sum += numbers[rank++][element];
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace lockstep::testing
