// join_process_group(): processes that meet in c10d's store and exchange tensors through its Gloo.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/gloo/addresses.h>
#include <lockstep/parallel/collectives/gloo/exchange_texts.h>
#include <lockstep/parallel/collectives/gloo/failures/failure_watch.h>
#include <lockstep/parallel/collectives/gloo/gloo_channel.h>
#include <lockstep/parallel/collectives/gloo/process_store.h>
#include <lockstep/parallel/collectives/gloo/roll_call.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// How long a process waits for the others when it leaves. Process 0 would take the store with it.
constexpr std::chrono::seconds kLeaveLimit{2};
constexpr std::chrono::seconds kStoreLeaveLimit{10};

// PyTorch's variable names the interface for its connections through Gloo. Empty: nobody has said.
std::string channels_listen_on(const std::string& listen) {
  constexpr const char* kVariable = "GLOO_SOCKET_IFNAME";
  const auto interface = process_environment()(kVariable).value_or("");
  return listen.empty() && !interface.empty() ? address_of_interface(interface, kVariable) : listen;
}

// A part of a world shares this with the whole: one watch, which names the processes as both do.
struct WholeWorld {
  std::shared_ptr<FailureWatch> watch = {};  // null: there is no larger one
  std::string part = {};                     // the first word of its channels' names
};

class GlooProcessGroup : public ProcessGroup {
 public:
  GlooProcessGroup(World world, const JoinOptions& options, WholeWorld whole = {});
  // After an error, and while another exception unwinds the stack, it waits for nobody. Otherwise it waits
  // for the others for a while: whoever leaves ends collectives that others still wait for.
  ~GlooProcessGroup() override;

  const World& world() const override { return world_; }
  std::chrono::milliseconds timeout() const override { return timeout_; }
  std::vector<std::string> gather(const std::string& own) override;
  std::vector<std::unique_ptr<Channel>> make_channels(int count) override;
  std::shared_ptr<ProcessGroup> subgroup(int count) override;
  std::exception_ptr explain(const std::exception_ptr& error, const std::string& name) noexcept override;

 private:
  std::shared_ptr<FailureWatch> watch() const;
  bool all_is_well() const;
  GlooChannel open_channel(const std::shared_ptr<C10dStore>& client, const std::string& name);
  std::vector<std::string> exchange(const std::string& name, const std::string& own,
                                    std::chrono::milliseconds limit);

  World world_;
  const JoinOptions options_;
  const std::chrono::milliseconds timeout_ = options_.timeout;
  const std::string listen_ = channels_listen_on(options_.listen);
  const int exceptions_ = std::uncaught_exceptions();
  const ProcessStore store_;
  const WholeWorld whole_;
  // Opened before the roll call: until then process 0 does not leave, nor the store with it.
  const std::shared_ptr<C10dStore> board_client_ = whole_.watch ? nullptr : store_.another_client();
  std::vector<Presence> presences_;                               // by process
  std::vector<std::shared_ptr<const PostedCollectives>> posted_;  // by channel
  const std::shared_ptr<std::mutex> posting_ = std::make_shared<std::mutex>();
  const std::shared_ptr<PostedCollectives> gathered_ = std::make_shared<PostedCollectives>();
  int communicators_ = 0;  // that have channels
  uint64_t gathers_ = 0;
  uint64_t waits_ = 0;        // in the store: gathers, and connections of channels
  std::map<int, int> parts_;  // how often subgroup() was called, by count
  bool failed_ = false;
  std::shared_ptr<FailureWatch> watch_;
};

GlooProcessGroup::GlooProcessGroup(World world, const JoinOptions& options, WholeWorld whole)
    : world_(std::move(world)),
      options_(options),
      store_(world_, options.listen, options.timeout),
      whole_(std::move(whole)) {
  presences_ = call_roll(store_, world_, own_presence(world_), timeout_);
  count_processes_on_host(world_, presences_);
  if (options_.divide_cores) divide_cores(world_, presences_);
  watch_ = whole_.watch ? whole_.watch : watch();
  watch_->add(whole_.part + "the store", gathered_, ChannelKind::kStore);
}

std::shared_ptr<FailureWatch> GlooProcessGroup::watch() const {
  FailureBoard board(board_client_, world_.process, world_.processes);
  return std::make_shared<FailureWatch>(
      std::move(board), WatchOptions{.process = world_.process,
                                     .serves_store = store_.is_served_here(),
                                     .processes = presences_,
                                     .store = {.of_launcher = world_.store_runs, .place = store_.place()}});
}

std::shared_ptr<ProcessGroup> join(const World& world, const JoinOptions& options, WholeWorld whole = {}) {
  try {
    return std::make_shared<GlooProcessGroup>(world, options, std::move(whole));
  } catch (const PeerError& error) {  // the store was lost: process 0 has found something wrong
    throw DeviceError(error.message_text(), error.hint_text());
  }
}

bool GlooProcessGroup::all_is_well() const {
  if (failed_ || std::uncaught_exceptions() > exceptions_) return false;
  // A channel that its owner ends while nothing is under way has lost nothing.
  return std::none_of(posted_.begin(), posted_.end(), [](const auto& posted) { return posted->lost_any(); });
}

GlooProcessGroup::~GlooProcessGroup() {
  if (!all_is_well()) return;
  try {
    if (!whole_.watch) watch_->leave();
    exchange("leave", "", store_.is_served_here() ? kStoreLeaveLimit : kLeaveLimit);
  } catch (const std::exception&) {
    // Another process has left without a word. This one has done its work.
  }
}

std::vector<std::string> GlooProcessGroup::exchange(const std::string& name, const std::string& own,
                                                    std::chrono::milliseconds limit) {
  return exchange_texts(store_, world_, name, own, limit, [this] { return watch_->ends_waits(); });
}

std::string gather_name(uint64_t number) { return fmt::format("gather/{}", number); }

std::vector<std::string> GlooProcessGroup::gather(const std::string& own) try {
  const auto number = gathers_++;
  if (number >= 2) forget_texts(store_, world_, gather_name(number - 2));
  const auto wait = waits_++;
  gathered_->begin(
      {.number = wait, .name = "gather", .elements = static_cast<int64_t>(own.size()), .type = "bytes"});
  auto texts = exchange(gather_name(number), own, timeout_);
  gathered_->finish(wait);
  return texts;
} catch (...) {
  gathered_->fail(std::current_exception());
  failed_ = true;
  throw;
}

GlooChannel GlooProcessGroup::open_channel(const std::shared_ptr<C10dStore>& client,
                                           const std::string& name) {
  const auto wait = waits_++;
  gathered_->begin({.number = wait, .name = "connection", .elements = world_.processes, .type = "processes"});
  auto opened = open_gloo_channel(client, {.process = world_.process,
                                           .processes = world_.processes,
                                           .channel = static_cast<int>(posted_.size()),
                                           .address = channel_address(world_, presences_, listen_),
                                           .timeout = timeout_,
                                           .posting = posting_,
                                           .given_up = [this] { return watch_->ends_waits(); }});
  gathered_->finish(wait);
  watch_->add(name, opened.posted);
  posted_.push_back(opened.posted);
  return opened;
}

std::vector<std::unique_ptr<Channel>> GlooProcessGroup::make_channels(int count) try {
  agree(this, "numbers of channels", {std::to_string(count)},
        "start all processes with the same program and options");
  // All are here now: connecting to them takes a moment.
  std::vector<std::unique_ptr<Channel>> channels;
  const auto client = store_.another_client();
  const auto name = fmt::format("{}communicator {}", whole_.part, communicators_++);  // for the same calls
  for (int i = 0; i < count; ++i) channels.push_back(std::move(open_channel(client, name).channel));
  return channels;
} catch (...) {
  gathered_->fail(std::current_exception());
  failed_ = true;
  throw;
}

// The part meets in the same store, with keys of its own. Its processes have the same numbers.
std::shared_ptr<ProcessGroup> GlooProcessGroup::subgroup(int count) {
  World part = world_;
  part.processes = count;
  part.process_on_host = 0;
  part.processes_on_host = 0;  // counted again
  part.master_host = store_.host();
  part.store_runs = true;
  const auto name = fmt::format("first {} {}/", count, parts_[count]++);
  part.run += "/" + name;
  return join(part, options_, {.watch = watch_, .part = whole_.part + name});
}

std::exception_ptr GlooProcessGroup::explain(const std::exception_ptr& error,
                                             const std::string& name) noexcept {
  failed_ = true;
  return watch_->explain(error, name);
}

}  // namespace

std::shared_ptr<ProcessGroup> join_process_group(const World& world, const JoinOptions& options) {
  return world.processes == 1 ? nullptr : join(world, options);
}

}  // namespace lockstep
