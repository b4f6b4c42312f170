// join_processes(): processes that meet in c10d's store and exchange tensors through its Gloo.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <lockstep/parallel/collectives/gloo/exchange_texts.h>
#include <lockstep/parallel/collectives/gloo/gloo_channel.h>
#include <lockstep/parallel/collectives/gloo/process_store.h>
#include <lockstep/parallel/collectives/gloo/roll_call.h>
#include <lockstep/parallel/processes.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// How long a process waits for the others when it leaves.
constexpr std::chrono::seconds kLeaveLimit{10};

class GlooProcesses : public Processes {
 public:
  GlooProcesses(World world, const JoinOptions& options);
  // After an error, and while another exception unwinds the stack, it waits for nobody. Otherwise it waits
  // for the others, for at most ten seconds: process 0 would take the store with it, and whoever leaves ends
  // collectives that others still wait for.
  ~GlooProcesses() override;

  const World& world() const override { return world_; }
  std::vector<std::string> gather(const std::string& own) override;
  std::vector<std::unique_ptr<Channel>> open_channels(int count) override;

 private:
  bool all_is_well() const;
  void check_count(int count);

  World world_;
  const std::chrono::milliseconds timeout_;
  const int exceptions_ = std::uncaught_exceptions();
  const ProcessStore store_;
  std::string address_;                                           // on which channels listen
  std::vector<std::shared_ptr<const PostedCollectives>> posted_;  // by channel
  const std::shared_ptr<std::mutex> posting_ = std::make_shared<std::mutex>();
  int64_t gathers_ = 0;
  bool failed_ = false;
};

GlooProcesses::GlooProcesses(World world, const JoinOptions& options)
    : world_(std::move(world)), timeout_(options.timeout), store_(world_, options.listen, options.timeout) {
  const auto all = call_roll(store_, world_, own_presence(world_), timeout_);
  count_local_processes(world_, all);
  address_ = channel_address(world_, all, options.listen);
}

bool GlooProcesses::all_is_well() const {
  if (failed_ || std::uncaught_exceptions() > exceptions_) return false;
  return std::none_of(posted_.begin(), posted_.end(), [](const auto& posted) { return posted->failed(); });
}

GlooProcesses::~GlooProcesses() {
  if (!all_is_well()) return;
  try {
    exchange_texts(store_, world_, "leave", "", kLeaveLimit);
  } catch (const std::exception&) {
    // Another process has left without a word. What this one has done is done.
  }
}

std::string gather_name(int64_t number) { return fmt::format("gather/{}", number); }

std::vector<std::string> GlooProcesses::gather(const std::string& own) try {
  const auto number = gathers_++;
  if (number >= 2) forget_texts(store_, world_, gather_name(number - 2));
  return exchange_texts(store_, world_, gather_name(number), own, timeout_);
} catch (...) {
  failed_ = true;
  throw;
}

// Throws UsageError when the processes open different numbers of channels.
void GlooProcesses::check_count(int count) {
  const auto counts = gather(std::to_string(count));
  for (size_t process = 0; process < counts.size(); ++process) {
    if (counts[process] == counts.front()) continue;
    throw UsageError(
        fmt::format("process 0 opens {} channels, process {} {}", counts.front(), process, counts[process]));
  }
}

std::vector<std::unique_ptr<Channel>> GlooProcesses::open_channels(int count) try {
  check_count(count);  // all are here now: connecting to them takes a moment
  std::vector<std::unique_ptr<Channel>> channels;
  const auto client = store_.another_client();
  for (int i = 0; i < count; ++i) {
    auto opened = open_gloo_channel(client, {.process = world_.process,
                                             .processes = world_.processes,
                                             .channel = static_cast<int>(posted_.size()),
                                             .address = address_,
                                             .timeout = timeout_,
                                             .posting = posting_});
    channels.push_back(std::move(opened.channel));
    posted_.push_back(std::move(opened.posted));
  }
  return channels;
} catch (...) {
  failed_ = true;
  throw;
}

}  // namespace

std::shared_ptr<Processes> join_processes(const World& world, const JoinOptions& options) {
  if (world.processes == 1) return nullptr;
  try {
    return std::make_shared<GlooProcesses>(world, options);
  } catch (const PeerError& error) {  // the store was lost: process 0 has found something wrong
    throw DeviceError(error.what(), error.hint());
  }
}

}  // namespace lockstep
