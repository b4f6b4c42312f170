#include <lockstep/app/bench/step/peak.h>

#include <lockstep/parallel/replica_workers.h>
#include <lockstep/support/statistics.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

constexpr int64_t kOnCpus = 1024;
constexpr int64_t kOnGpus = 8192;
constexpr int kRepeats = 7;

}  // namespace

double measured_peak(const std::vector<torch::Device>& devices, int threads, Precision precision) {
  ReplicaWorkers workers(devices, threads);
  std::vector<torch::Tensor> factors(devices.size()), results(devices.size());
  double operations = 0;
  for (const auto& device : devices) {
    const double size = static_cast<double>(device.is_cpu() ? kOnCpus : kOnGpus);
    operations += 2 * size * size * size;
  }
  const auto multiply = [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    const auto size = devices[i].is_cpu() ? kOnCpus : kOnGpus;
    const auto options = torch::TensorOptions(type_of_layers(precision)).device(devices[i]);
    if (!factors[i].defined()) {
      factors[i] = torch::rand({size, size}, options);
      results[i] = torch::empty({size, size}, options);
    }
    torch::mm_out(results[i], factors[i], factors[i]);
  };
  workers.run(multiply);  // warm-up
  workers.synchronize();
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    Stopwatch watch;
    workers.run(multiply);
    workers.synchronize();
    seconds.push_back(watch.lap());
  }
  return operations / median(seconds);
}

}  // namespace lockstep
