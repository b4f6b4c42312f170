// Each channel has a ProcessGroupGloo of its own, since a group matches the collectives of the processes by a
// counter of its own, and runs them one after the other in a thread of its own. That thread may wait for a
// peer for the whole time-out, so nothing else ever waits for it: when a collective ends it fulfils a
// promise, and after an error the group is abandoned.
#include <lockstep/parallel/collectives/gloo/gloo_channel.h>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/collective_thread.h>
#include <lockstep/parallel/collectives/gloo/c10d_store.h>
#include <lockstep/parallel/collectives/gloo/call_within.h>
#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using GlooGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

constexpr const char* kPeerHint = "another process ended, hangs or cannot be reached: see its own message";
constexpr std::chrono::seconds kConnectGrace{10};  // over Gloo's own time-out

constexpr torch::ScalarType kGlooTypes[] = {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16,
                                            torch::kByte,  torch::kChar,   torch::kInt,  torch::kLong};

void check_gloo_tensor(const torch::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_contiguous()) {
    throw UsageError(
        fmt::format("Gloo got {} that are not contiguous in host memory", describe_elements(tensor)),
        "copy the tensor to the CPU, and make it contiguous");
  }
  if (std::find(std::begin(kGlooTypes), std::end(kGlooTypes), tensor.scalar_type()) == std::end(kGlooTypes)) {
    throw UsageError(fmt::format("Gloo cannot exchange {}", describe_elements(tensor)),
                     "convert the tensor to another type");
  }
}

class ChannelOfGroup : public Channel {
 public:
  ChannelOfGroup(GlooGroup group, std::shared_ptr<PostedCollectives> posted,
                 std::shared_ptr<std::mutex> posting)
      : group_(std::move(group)), posted_(std::move(posted)), posting_(std::move(posting)) {}

  // The group's destructor joins its thread. A thread that may wait for a peer is left behind, with the group
  // and the tensors that it works on.
  ~ChannelOfGroup() override {
    if (!posted_->idle()) static_cast<void>(group_.release());
  }

  std::future<void> allreduce_sum(torch::Tensor tensor) override {
    check_gloo_tensor(tensor);
    std::vector<torch::Tensor> tensors{tensor};
    return post("allreduce", tensor, [&] { return group_->allreduce(tensors); });
  }

  std::future<void> broadcast(torch::Tensor tensor, int process) override {
    check_gloo_tensor(tensor);
    check_process(process);
    std::vector<torch::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = process;
    return post(fmt::format("broadcast from process {}", process), tensor,
                [&] { return group_->broadcast(tensors, options); });
  }

  std::future<void> all_gather(torch::Tensor tensor, torch::Tensor out) override {
    check_gloo_tensor(tensor);
    check_gathered(tensor, out);
    std::vector<torch::Tensor> inputs{tensor};
    std::vector<std::vector<torch::Tensor>> outputs{out.detach().unbind(0)};
    return post("all_gather", tensor, [&] { return group_->allgather(outputs, inputs); });
  }

  void abort(std::exception_ptr error) noexcept override { posted_->fail(error); }

 private:
  void check_process(int process) const {
    if (process >= 0 && process < group_->getSize()) return;
    throw UsageError(fmt::format("broadcast from process {} of {}", process, group_->getSize()));
  }

  // out (processes, ...tensor's shape)
  void check_gathered(const torch::Tensor& tensor, const torch::Tensor& out) const {
    check_gloo_tensor(out);
    auto shape = tensor.sizes().vec();
    shape.insert(shape.begin(), group_->getSize());
    if (out.sizes().vec() == shape && out.scalar_type() == tensor.scalar_type()) return;
    throw UsageError(fmt::format("all_gather of {} from {} processes into {}", describe_elements(tensor),
                                 group_->getSize(), describe_elements(out)));
  }

  template <typename Launch>
  std::future<void> post(const std::string& what, const torch::Tensor& tensor, const Launch& launch);

  GlooGroup group_;
  const std::shared_ptr<PostedCollectives> posted_;
  const std::shared_ptr<std::mutex> posting_;
  uint64_t count_ = 0;
};

PeerError collective_error(const std::string& name, const std::string& what) {
  return PeerError(fmt::format("{} failed: {}", name, clean_words(what)), kPeerHint);
}

// Called by Gloo's thread.
void end_collective(PostedCollectives& posted, uint64_t number, const std::string& name,
                    const c10::ivalue::Future& result) {
  if (!result.hasError()) return posted.finish(number);
  posted.fail(std::make_exception_ptr(collective_error(name, result.tryRetrieveErrorMessage())));
}

template <typename Launch>
std::future<void> ChannelOfGroup::post(const std::string& what, const torch::Tensor& tensor,
                                       const Launch& launch) {
  const auto number = count_++;
  auto done = posted_->begin(number);
  if (posted_->failed()) return done;
  if (tensor.numel() == 0) {
    posted_->finish(number);
    return done;
  }
  const auto name = fmt::format("{} of {}, collective {} of process {} of {},", what,
                                describe_elements(tensor), number, group_->getRank(), group_->getSize());
  try {
    // The callback has no part in the group: in Gloo's thread it cannot be the last to hold it.
    const auto work = [&] {
      const std::lock_guard lock(*posting_);
      return launch();
    }();
    work->getFuture()->addCallback(
        [posted = posted_, number, name](const c10::ivalue::Future& result) {
          end_collective(*posted, number, name, result);
        },
        /*uses_future=*/false);
  } catch (const std::exception& error) {
    posted_->fail(std::make_exception_ptr(collective_error(name, error.what())));
  }
  return done;
}

std::shared_ptr<gloo::transport::Device> listen_with_gloo(const GlooChannelOptions& options) {
  try {
    return c10d::ProcessGroupGloo::createDeviceForHostname(options.address);
  } catch (const std::exception& error) {
    throw DeviceError(fmt::format("process {} cannot listen on {}: {}", options.process, options.address,
                                  clean_words(error.what())),
                      "give an address of this host to listen on");
  }
}

GlooGroup connect_group(const std::shared_ptr<C10dStore>& store, const GlooChannelOptions& options) {
  auto group = c10d::ProcessGroupGloo::Options::create(options.timeout);
  group->threads = 1;
  group->devices.push_back(listen_with_gloo(options));
  const auto prefix = fmt::format("channel/{}", options.channel);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>(prefix, store->store), options.process, options.processes,
      std::move(group));
}

}  // namespace

GlooChannel open_gloo_channel(const std::shared_ptr<C10dStore>& store, const GlooChannelOptions& options) {
  const auto failed = [&](const std::string& why) {
    return PeerError(fmt::format("process {} of {} cannot connect to the others: {}", options.process,
                                 options.processes, why),
                     kPeerHint);
  };
  try {
    auto group = call_within(options.timeout + kConnectGrace,
                             [store, options] { return connect_group(store, options); });
    auto posted = std::make_shared<PostedCollectives>();
    return {.channel = std::make_unique<ChannelOfGroup>(std::move(group), posted, options.posting),
            .posted = posted};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // c10d's, or a LateCall
    throw failed(clean_words(error.what()));
  }
}

}  // namespace lockstep
