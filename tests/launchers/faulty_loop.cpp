// A loop of sums over several processes. One process fails by itself, or makes another call.
//
//   faulty_loop FAULT PROCESS SUM DEVICES TIMEOUT [parts]
//
// parts: each rank gets the sums of its part and gives them to the others, as with --shard. The fault is
// between the two.
//
// FAULT, of this process before this sum: error (a replica throws), exit (code 0, in the middle), leave (the
// loop ends there, and the program returns), kill, stop (by signals); or differ: this sum is one of five
// numbers, and every process ends by what wait() has thrown. DEVICES: of each process. TIMEOUT in seconds.
// Started as torchrun or lockstep launch start programs.
#include <torch/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/error.h>

namespace {

struct Fault {
  std::string kind;
  int process;
  int sum;
};

// False: the loop ends.
bool go_on(const Fault& fault, int process, int local, int sum) {
  if (fault.kind == "differ" || process != fault.process || sum != fault.sum) return true;
  if (fault.kind == "leave") return false;
  if (local != 0) return true;
  if (fault.kind == "exit") ::_exit(0);
  if (fault.kind == "kill") std::raise(SIGKILL);
  if (fault.kind == "stop") std::raise(SIGSTOP);
  throw std::runtime_error("the fault of process " + std::to_string(process));
}

// Nearly equal parts of so many elements.
lockstep::PartBounds even_parts(int64_t size, int ranks) {
  lockstep::PartBounds bounds;
  for (int64_t rank = 0; rank <= ranks; ++rank) bounds.push_back(size * rank / ranks);
  return bounds;
}

void add_up_parts(lockstep::Endpoint& endpoint, const Fault& fault, int process, int local) {
  const auto tensor = torch::ones({10'007});
  const auto bounds = even_parts(tensor.numel(), endpoint.world_size());
  for (int sum = 0;; ++sum) {
    tensor.fill_(endpoint.rank());
    endpoint.reduce_scatter(tensor, bounds).wait();
    if (!go_on(fault, process, local, sum)) return;
    endpoint.gather_parts(tensor, bounds).wait();
  }
}

void add_up(const std::shared_ptr<lockstep::ProcessGroup>& group, const Fault& fault, const std::string& list,
            bool by_parts) {
  const auto devices = lockstep::parse_devices(list);
  lockstep::ReplicaWorkers workers(devices, /*threads=*/1);
  const auto communicator = lockstep::make_communicator({.devices = devices, .process_group = group});
  const int process = group->world().process;
  workers.run(*communicator, [&](int local, lockstep::Endpoint& endpoint) {
    if (by_parts) return add_up_parts(endpoint, fault, process, local);
    const auto tensor = torch::ones({10'007});
    for (int sum = 0; go_on(fault, process, local, sum); ++sum) {
      tensor.fill_(endpoint.rank());
      const bool differs = fault.kind == "differ" && process == fault.process && sum == fault.sum;
      endpoint.allreduce_sum(differs ? tensor.narrow(0, 0, 5) : tensor).wait();
    }
  });
}

// The end of a process that has failed: what it has lost may still be in use.
[[noreturn]] void end_by(const std::string& what, int code) {
  std::fprintf(stderr, "faulty_loop: error: %s\n", what.c_str());
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) return 2;
  std::signal(SIGTERM, SIG_IGN);  // of a launcher that has seen another process end
  const Fault fault{.kind = argv[1], .process = std::atoi(argv[2]), .sum = std::atoi(argv[3])};
  const auto group = lockstep::join_process_group(lockstep::find_world(),
                                                  {.timeout = std::chrono::seconds(std::atoi(argv[5]))});
  try {
    add_up(group, fault, argv[4], /*by_parts=*/argc == 7);
  } catch (...) {
    try {
      const auto error = std::current_exception();
      std::rethrow_exception(fault.kind == "differ" ? error : group->explain(error));
    } catch (const lockstep::Error& error) {
      end_by(error.message(), static_cast<int>(error.exit_code()));
    } catch (const std::exception& error) {
      end_by(error.what(), 1);
    }
  }
  return 0;
}
