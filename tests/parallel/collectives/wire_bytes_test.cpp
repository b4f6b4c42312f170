// The bytes that a process sends to others: the formulas, and what it posts.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/collectives/wire_bytes.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/tests/parallel/collectives/between_processes.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

class CountingChannel : public Channel {
 public:
  CountingChannel(std::unique_ptr<Channel> channel, int64_t processes,
                  std::shared_ptr<std::atomic<int64_t>> sent)
      : channel_(std::move(channel)), processes_(processes), sent_(std::move(sent)) {}

  // Gloo cuts the tensor into a part per process: each part goes round once to be added and once to be
  // copied.
  std::future<void> allreduce_sum(torch::Tensor tensor) override {
    *sent_ += 2 * (processes_ - 1) * static_cast<int64_t>(tensor.nbytes()) / processes_;
    return channel_->allreduce_sum(tensor);
  }
  std::future<void> broadcast(torch::Tensor tensor, int process) override {
    return channel_->broadcast(tensor, process);
  }
  // The own tensor to every other process, directly or around the ring.
  std::future<void> all_gather(torch::Tensor tensor, torch::Tensor out) override {
    *sent_ += (processes_ - 1) * static_cast<int64_t>(tensor.nbytes());
    return channel_->all_gather(tensor, out);
  }
  // All rows but one leave the process; of unequal parts the own one is empty.
  std::future<void> all_to_all(torch::Tensor tensor, torch::Tensor out, DealtSizes sizes) override {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    *sent_ += sizes.sent.empty() ? (processes_ - 1) * bytes / processes_ : bytes;
    return channel_->all_to_all(tensor, out, sizes);
  }
  void abort(std::exception_ptr error) noexcept override { channel_->abort(error); }

 private:
  const std::unique_ptr<Channel> channel_;
  const int64_t processes_;
  const std::shared_ptr<std::atomic<int64_t>> sent_;
};

class CountingProcessGroup : public ProcessGroup {
 public:
  explicit CountingProcessGroup(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  const World& world() const override { return group_->world(); }
  std::vector<std::string> gather(const std::string& own) override { return group_->gather(own); }
  std::vector<std::unique_ptr<Channel>> make_channels(int count) override {
    std::vector<std::unique_ptr<Channel>> counting;
    for (auto& channel : open_channels(*group_, count)) {
      counting.push_back(std::make_unique<CountingChannel>(std::move(channel), world().processes, sent_));
    }
    return counting;
  }
  int64_t take_sent() { return sent_->exchange(0); }

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const std::shared_ptr<std::atomic<int64_t>> sent_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace

TEST_CASE("the formulas of docs/scaling-out.md say what each process sends") {
  constexpr int64_t kElements = 129'068;  // LeNet's, S = 516,272 bytes
  // By the page: 2 S (N-1)/N, S (N-1)/N, S (N-1) times the most replicas.
  CHECK(wire_bytes_of_sum(516'272, 2) == 516'272);
  CHECK(wire_bytes_of_sum(516'272, 4) == 774'408);
  CHECK(wire_bytes_of_sum(516'272, 2, Compress::kBf16) == 258'136);
  CHECK(wire_bytes_of_sum(516'272, 4, Compress::kFp16) == 387'204);
  CHECK(wire_bytes_of_gather(516'272, 3, 2) == 2'065'088);
  CHECK(wire_bytes_of_sum(516'272, 1) == 0);
  for (const auto& layout : kLayouts) {
    for (const auto compress : {Compress::kNone, Compress::kBf16}) {
      const int world = world_of(layout), count = processes_of(layout);
      const int most = *std::max_element(layout.begin(), layout.end());
      const auto tensors = inputs(world, kElements, torch::kFloat32);
      std::vector<int64_t> sums(layout.size()), gathers(layout.size());
      run_processes(count, [&](int process, const Group& group) {
        const auto p = static_cast<size_t>(process);
        const auto counting = std::make_shared<CountingProcessGroup>(group);
        const auto communicator =
            communicator_of(layout, process, counting, {.devices = {}, .compress = compress});
        counting->take_sent();
        allreduce_gradients_all(*communicator, tensors);
        sums[p] = counting->take_sent();
        run_on_all(*communicator, [&](Endpoint& endpoint, size_t rank) {
          return endpoint.all_gather(tensors[rank], torch::empty({world, kElements}));
        });
        gathers[p] = counting->take_sent();
      });
      const auto expected = wire_bytes_of_sum(4 * kElements, count, compress);
      // At most one number of each chunk per process is filled up with zeros or lost in a division.
      const int64_t slack = 4 * 2 * most * count;
      for (size_t p = 0; p < layout.size(); ++p) {
        INFO(text_of(layout) << " replicas, process " << p << ", " << name_of(kCompressNames, compress));
        CHECK(std::abs(sums[p] - expected) <= slack);
        CHECK(gathers[p] == wire_bytes_of_gather(4 * kElements, count, most));
      }
    }
  }
}
