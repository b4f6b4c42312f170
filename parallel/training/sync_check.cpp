#include <lockstep/parallel/training/sync_check.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <map>

#include <lockstep/parallel/batch_norm/norms.h>
#include <lockstep/support/files/xxhash64.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

// The columns of a report. Hashes follow.
enum ReportColumn : int64_t { kDeviceType, kDeviceIndex, kProcess, kFirstHash };

constexpr size_t kMostNamedRanks = 8;

// reports: (world, 3 + tensors) int64 on the host
class SyncReports {
 public:
  explicit SyncReports(const torch::Tensor& reports)
      : reports_(reports.contiguous()),
        width_(reports_.size(1)),
        values_(reports_.const_data_ptr<int64_t>()) {}

  int world_size() const { return static_cast<int>(reports_.size(0)); }
  int64_t device_type(int rank) const { return at(rank, kDeviceType); }
  int64_t hash(int rank, size_t tensor) const { return at(rank, kFirstHash + static_cast<int64_t>(tensor)); }

  // "2 (cpu of process 1)"; without the process if there is one alone
  std::string name(int rank) const {
    const torch::Device device(static_cast<torch::DeviceType>(device_type(rank)),
                               static_cast<c10::DeviceIndex>(at(rank, kDeviceIndex)));
    const bool alone = at(world_size() - 1, kProcess) == 0;
    const auto place = alone ? "" : fmt::format(" of process {}", at(rank, kProcess));
    return fmt::format("{} ({}{})", rank, device.str(), place);
  }

 private:
  int64_t at(int64_t rank, int64_t column) const { return values_[rank * width_ + column]; }

  const torch::Tensor reports_;
  const int64_t width_;
  const int64_t* values_;
};

// The ranks by the type of their device, in order. Only the sums of gradients on one type have the same bits.
std::map<int64_t, std::vector<int>> ranks_by_device_type(const SyncReports& reports) {
  std::map<int64_t, std::vector<int>> ranks;
  for (int rank = 0; rank < reports.world_size(); ++rank) ranks[reports.device_type(rank)].push_back(rank);
  return ranks;
}

// Returns the lowest of the ranks that have the tensor as most of them have it.
int rank_of_most(const SyncReports& reports, const std::vector<int>& ranks, size_t tensor) {
  std::map<int64_t, int> counts;
  for (const int rank : ranks) ++counts[reports.hash(rank, tensor)];
  return *std::max_element(ranks.begin(), ranks.end(), [&](int a, int b) {
    return counts.at(reports.hash(a, tensor)) < counts.at(reports.hash(b, tensor));
  });
}

// "rank 2 (cpu)", "ranks 2 (cpu) and 3 (cpu)"
std::string ranks_text(const SyncReports& reports, const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamedRanks); ++i)
    names.push_back(reports.name(ranks[i]));
  if (ranks.size() == 1) return "rank " + names.front();
  std::string last = fmt::format("{} more", ranks.size() - names.size());
  if (ranks.size() == names.size()) {
    last = names.back();
    names.pop_back();
  }
  return fmt::format("ranks {} and {}", fmt::join(names, ", "), last);
}

}  // namespace

std::vector<NamedTensor> replicated_tensors(const torch::nn::Module& module, bool batch_norms) {
  auto tensors = distinct_parameters(module);
  if (!batch_norms) return tensors;
  for (const auto& part : module.named_modules()) {
    if (!is_batch_norm(*part.value())) continue;
    for (const auto& item : part.value()->named_buffers(/*recurse=*/false)) {
      const auto name = part.key().empty() ? item.key() : part.key() + "." + item.key();
      tensors.push_back({.name = name, .tensor = item.value()});
    }
  }
  return tensors;
}

int64_t hash_of_bits(const torch::Tensor& tensor) {
  const auto host = tensor.detach().cpu().contiguous();
  const auto* bytes = static_cast<const std::byte*>(host.const_data_ptr());
  return std::bit_cast<int64_t>(xxhash64({bytes, host.nbytes()}));
}

torch::Tensor sync_report(std::span<const NamedTensor> tensors, torch::Device device, int process) {
  std::vector<int64_t> report(static_cast<size_t>(kFirstHash));
  report[kDeviceType] = static_cast<int64_t>(device.type());
  report[kDeviceIndex] = device.index();
  report[kProcess] = process;
  for (const auto& item : tensors) report.push_back(hash_of_bits(item.tensor));
  return torch::tensor(report, torch::kInt64).to(device);
}

void require_equal_reports(const torch::Tensor& reports, std::span<const NamedTensor> tensors,
                           int64_t steps_taken) {
  const SyncReports all(reports);
  const auto by_type = ranks_by_device_type(all);
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const auto& [type, ranks] : by_type) {
      const int usual = rank_of_most(all, ranks, i);
      std::vector<int> others;
      std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(others),
                   [&](int rank) { return all.hash(rank, i) != all.hash(usual, i); });
      if (others.empty()) continue;
      throw OutOfSyncError(
          fmt::format("after step {} the replicas differ: {} of {} is not that of rank {}", steps_taken,
                      tensors[i].name, ranks_text(all, others), usual),
          "a device or its memory may be faulty: then another run names the same device. Otherwise look for "
          "code that changes the weights of one replica");
    }
  }
}

}  // namespace lockstep
