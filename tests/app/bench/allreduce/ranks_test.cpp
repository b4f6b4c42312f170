// The sums of `bench allreduce` over several processes, which are threads here, the kernel's count of what a
// process sends, and the row that reports a sum.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/bench/allreduce/ranks.h>
#include <lockstep/app/bench/allreduce/row.h>
#include <lockstep/app/bench/allreduce/sent_bytes.h>
#include <lockstep/app/report/bench_replicas.h>
#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/thread_processes.h>

using namespace lockstep;
using lockstep::testing::run_processes;

namespace {

std::vector<torch::Device> cpus(size_t count) { return {count, torch::Device(torch::kCPU)}; }

// Two replicas in process 0, one in each other process.
std::vector<torch::Device> devices_of_process(int process) { return cpus(process == 0 ? 2 : 1); }

TrainWorld world_with(int process, const std::vector<size_t>& replicas) {
  TrainWorld world{.place = {.process = process, .processes = static_cast<int>(replicas.size())}};
  for (const auto count : replicas) world.devices.push_back(cpus(count));
  return world;
}

// Adds 1 to the first element of every sum.
class SpoiledChannel : public Channel {
 public:
  explicit SpoiledChannel(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

  std::future<void> allreduce_sum(torch::Tensor tensor) override {
    return std::async(std::launch::deferred, [done = channel_->allreduce_sum(tensor), tensor]() mutable {
      done.get();
      tensor.narrow(0, 0, 1).add_(1);
    });
  }
  std::future<void> broadcast(torch::Tensor tensor, int process) override {
    return channel_->broadcast(tensor, process);
  }
  std::future<void> all_gather(torch::Tensor tensor, torch::Tensor out) override {
    return channel_->all_gather(tensor, out);
  }
  std::future<void> all_to_all(torch::Tensor tensor, torch::Tensor out, DealtSizes sizes) override {
    return channel_->all_to_all(tensor, out, sizes);
  }
  void abort(std::exception_ptr error) noexcept override { channel_->abort(error); }

 private:
  const std::unique_ptr<Channel> channel_;
};

class SpoiledProcessGroup : public ProcessGroup {
 public:
  explicit SpoiledProcessGroup(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  const World& world() const override { return group_->world(); }
  std::vector<std::string> gather(const std::string& own) override { return group_->gather(own); }
  std::vector<std::unique_ptr<Channel>> make_channels(int count) override {
    std::vector<std::unique_ptr<Channel>> channels;
    for (auto& channel : open_channels(*group_, count)) {
      channels.push_back(std::make_unique<SpoiledChannel>(std::move(channel)));
    }
    return channels;
  }

 private:
  const std::shared_ptr<ProcessGroup> group_;
};

// A connection of this process with itself over the loopback interface.
struct Connection {
  Connection() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    from = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(listener, generic, size) == 0);
    REQUIRE(::listen(listener, 1) == 0);
    REQUIRE(::getsockname(listener, generic, &size) == 0);
    REQUIRE(::connect(from, generic, size) == 0);
    to = ::accept(listener, nullptr, nullptr);
    REQUIRE(to >= 0);
    ::close(listener);
  }
  ~Connection() {
    ::close(from);
    ::close(to);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int from = -1;
  int to = -1;
};

}  // namespace

TEST_CASE("the ranks of two processes sum together, and agree on what they have measured") {
  struct Measured {
    int world_size = 0;
    std::vector<int64_t> wrong = {};  // by size
    double seconds = 0;
    double copy_seconds = 0;
  };
  std::vector<Measured> all(2);
  const std::vector<int64_t> counts = {1, 2, 3, 7, 1009};
  run_processes(2, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    AllreduceRanks ranks(devices_of_process(process), 1, {Allreduce::kGloo}, group);
    auto& own = all[static_cast<size_t>(process)];
    own.world_size = ranks.world_size();
    for (const auto count : counts) {
      ranks.set_count(count);
      own.wrong.push_back(ranks.wrong_elements(0));
    }
    own.seconds = ranks.seconds(0, 3);
    own.copy_seconds = ranks.copy_seconds();
    group->gather("done");  // nobody leaves before the others are done
  });
  for (const auto& own : all) {
    CHECK(own.world_size == 3);
    CHECK(own.wrong == std::vector<int64_t>(counts.size(), 0));
    CHECK(own.seconds > 0);
    CHECK(own.seconds == all[0].seconds);
    CHECK(own.copy_seconds == all[0].copy_seconds);
  }
}

// The sum has a chunk for each replica of process 0. The one rank of process 1 spoils both.
TEST_CASE("a wrong sum in one process is counted in all") {
  std::vector<int64_t> wrong(2);
  run_processes(2, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    std::shared_ptr<ProcessGroup> own = group;
    if (process == 1) own = std::make_shared<SpoiledProcessGroup>(group);
    AllreduceRanks ranks(devices_of_process(process), 1, {Allreduce::kGloo}, own);
    ranks.set_count(100);
    wrong[static_cast<size_t>(process)] = ranks.wrong_elements(0);
    group->gather("done");
  });
  CHECK(wrong == std::vector<int64_t>{2, 2});
}

TEST_CASE("sent_bytes() counts what this process writes to TCP connections") {
  const Connection connection;
  const auto before = sent_bytes();
  REQUIRE(before);
  const std::array<char, 1009> bytes{};
  REQUIRE(::write(connection.from, bytes.data(), bytes.size()) == 1009);
  CHECK(sent_bytes() == *before + 1009);
  REQUIRE(::write(connection.to, bytes.data(), 1) == 1);
  CHECK(sent_bytes() == *before + 1010);
  std::array<int, 2> ends{};  // no TCP
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  REQUIRE(::write(ends[0], bytes.data(), 7) == 7);
  CHECK(sent_bytes() == *before + 1010);
  for (const int end : ends) ::close(end);
}

TEST_CASE("replicas of several processes are named by the lists of all, equal ones in a row counted") {
  const auto spec = [](const std::vector<size_t>& replicas) {
    return BenchReplicas{.world = world_with(0, replicas), .devices = cpus(replicas[0])}.spec();
  };
  CHECK(BenchReplicas{.devices = cpus(2)}.spec() == "cpux2");
  CHECK(BenchReplicas{.devices = cpus(2)}.count() == 2);
  CHECK(BenchReplicas{.world = world_with(0, {2, 1}), .devices = cpus(2)}.count() == 3);
  CHECK(spec({2, 1}) == "cpux2+cpu");
  CHECK(spec({1, 1}) == "cpu+cpu");
  CHECK(spec({1, 1, 1}) == "3(cpu)");
  CHECK(spec({2, 1, 1, 1, 1, 2}) == "cpux2+4(cpu)+cpux2");
}

TEST_CASE("the first lists of all processes are measured together, then the second ones") {
  std::vector<std::vector<std::string>> specs(2);
  std::vector<size_t> own_replicas;
  run_processes(2, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    BenchOptions options;
    options.devices =
        process == 0 ? std::vector<std::string>{"cpux2", "cpu"} : std::vector<std::string>{"cpu", "cpux3"};
    const TrainWorld world{.place = group->world(), .process_group = group};
    for (const auto& replicas : bench_replicas(world, options, {"auto"})) {
      specs[static_cast<size_t>(process)].push_back(replicas.spec());
      if (process == 1) own_replicas.push_back(replicas.devices.size());
    }
  });
  CHECK(specs[0] == std::vector<std::string>{"cpux2+cpu", "cpu+cpux3"});
  CHECK(specs[1] == specs[0]);
  CHECK(own_replicas == std::vector<size_t>{1, 3});
}

TEST_CASE("a row of several processes counts the replicas of all, and compares a sum with copying") {
  const BenchReplicas replicas{.world = world_with(1, {2, 1}), .devices = cpus(1)};
  const auto row = allreduce_row(replicas, 1, Allreduce::kGloo, 3000, {.wrong = 0, .wire_bytes = 3100},
                                 {1e-3, 1e-3, 1e-3}, {5e-4, 5e-4, 5e-4});
  CHECK(row.at("devices") == "cpux2+cpu");
  CHECK(row.at("ranks") == 3);
  CHECK(row.at("processes") == 2);
  CHECK(row.at("algorithm") == "gloo");
  CHECK(row.at("count") == 750);
  CHECK(row.at("threads") == 1);
  CHECK(row.at("algbw").get<double>() == Approx(3e-3));
  CHECK(row.at("busbw").get<double>() == Approx(4e-3));  // x 2 x 2/3
  CHECK(row.at("copy_us").get<double>() == Approx(500));
  CHECK(row.at("over_copy").get<double>() == Approx(2));
  CHECK(row.at("wire_bytes") == 3100);
  // Few repetitions have no ratio, and a kernel may not count what is sent.
  const auto unknown = allreduce_row(replicas, 1, Allreduce::kGloo, 3000, {}, {1e-3, 1e-3}, {5e-4, 5e-4});
  CHECK(unknown.at("over_copy").is_null());
  CHECK(unknown.at("wire_bytes").is_null());
}
