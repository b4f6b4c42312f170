#include <lockstep/parallel/communicator.h>

#include <fmt/format.h>

#include <string>
#include <utility>

#include <lockstep/parallel/collectives/allreduce/allreduce_choice.h>
#include <lockstep/parallel/collectives/host_communicator.h>
#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/parallel/collectives/rank_layout.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

Allreduce choose_between_processes(Allreduce wanted, std::span<const torch::Device> devices,
                                   ProcessGroup& group) {
  std::vector<AllreduceWish> wishes;
  for (const auto& text : group.gather(text_of_wish(own_wish(wanted, devices)))) {
    wishes.push_back(read_wish(text));
  }
  return choose_for_all(wanted, wishes);
}

bool are_several(const ProcessGroup* group) { return group && group->world().processes > 1; }

std::string to_hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// Process 0 makes the id and gives it to the others.
std::string shared_nccl_id(ProcessGroup* group) {
  if (!group) return make_nccl_id();
  const bool is_first = group->world().process == 0;
  return from_hex(group->gather(is_first ? to_hex(make_nccl_id()) : std::string()).front());
}

// Throws UsageError where processes compress differently, and where nothing is sent that could be compressed.
void check_compressible(const CommunicatorOptions& options) {
  const std::string own(name_of(kCompressNames, options.compress));
  if (options.process_group) {
    const auto all = options.process_group->gather("compress " + own);
    for (size_t process = 1; process < all.size(); ++process) {
      if (all[process] == all.front()) continue;
      throw UsageError(
          fmt::format("process 0 says \"{}\", process {} says \"{}\"", all.front(), process, all[process]),
          "start all processes with the same program and options");
    }
  }
  if (options.compress == Compress::kNone) return;
  if (!options.process_group) {
    throw UsageError(
        fmt::format("compress {} rounds what travels between processes, but this process is alone", own),
        "use Compress::kNone");
  }
  if (options.algorithm == Allreduce::kNccl) {
    throw UsageError(fmt::format("compress {} needs allreduce gloo, but it is nccl", own),
                     "use allreduce gloo, or Compress::kNone");
  }
}

}  // namespace

void Work::wait() {
  const auto next = std::exchange(next_, nullptr);
  if (done_.valid()) {
    if (const auto event = done_.get()) event->block(current_stream(event->device()));
  }
  if (next) next();
}

Work Work::then(std::function<void()> next) {
  Work result(std::move(done_));
  result.next_ = std::move(next);
  if (const auto first = std::exchange(next_, nullptr)) {
    result.next_ = [first, second = std::move(result.next_)] {
      first();
      second();
    };
  }
  return result;
}

Allreduce choose_allreduce(Allreduce wanted, std::span<const torch::Device> devices, ProcessGroup* group) {
  if (are_several(group)) return choose_between_processes(wanted, devices, *group);
  if (wanted == Allreduce::kGloo) {
    throw UsageError("allreduce gloo sums across processes, but this process is alone",
                     "use allreduce two_shot or auto");
  }
  if (wanted != Allreduce::kAuto && wanted != Allreduce::kNccl) return wanted;
  const auto problem = nccl_problem(devices);
  if (wanted == Allreduce::kNccl && problem) std::rethrow_exception(problem);
  return wanted == Allreduce::kNccl || (devices.size() > 1 && !problem) ? Allreduce::kNccl
                                                                        : Allreduce::kTwoShot;
}

std::unique_ptr<Communicator> make_communicator(CommunicatorOptions options) {
  if (options.devices.empty()) throw UsageError("a communicator needs at least one device");
  if (!are_several(options.process_group.get())) options.process_group = nullptr;
  const auto group = options.process_group;
  options.algorithm = choose_allreduce(options.algorithm, options.devices, group.get());
  if (!options.threads) options.threads = default_threads(static_cast<int>(options.devices.size()));
  const auto layout = gather_layout(static_cast<int>(options.devices.size()), group.get());
  check_compressible(options);
  if (options.algorithm != Allreduce::kNccl) return make_host_communicator(std::move(options), layout);
  return make_nccl_communicator({.devices = options.devices,
                                 .first_rank = layout.first_rank(),
                                 .world_size = layout.world_size(),
                                 .id = shared_nccl_id(group.get()),
                                 .timeout = group ? group->timeout() : kPeerTimeout,
                                 .trace = options.trace});
}

}  // namespace lockstep
