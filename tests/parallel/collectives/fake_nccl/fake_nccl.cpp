#include <lockstep/tests/parallel/collectives/fake_nccl/fake_nccl.h>

#include <torch/types.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using lockstep::testing::fake_nccl;
using lockstep::testing::FakeNccl;
using lockstep::testing::launch;

namespace {

torch::ScalarType torch_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return torch::kInt8;
    case ncclUint8:
      return torch::kUInt8;
    case ncclInt32:
      return torch::kInt32;
    case ncclInt64:
      return torch::kInt64;
    case ncclFloat16:
      return torch::kFloat16;
    case ncclFloat32:
      return torch::kFloat32;
    case ncclFloat64:
      return torch::kFloat64;
    case ncclBfloat16:
      return torch::kBFloat16;
  }
  return torch::kFloat32;
}

enum class Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter };

struct Call {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  int root;
  ncclRedOp_t operation = ncclSum;
};

// The ranks that share an id.
struct Group {
  explicit Group(int size) : world(size) {}

  const int world;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  int aborted = 0;
  struct Round {
    std::vector<Call> calls;
    int arrived = 0;
    bool done = false;
  };
  std::map<int, Round> rounds;  // by number

  // Called in a rank's stream: returns when all ranks have reached this round, or one was aborted.
  void meet(int number, int rank, const Call& call) {
    std::unique_lock lock(mutex);
    if (aborted > 0) return;  // the others' buffers may be freed
    auto& round = rounds[number];
    round.calls.resize(static_cast<size_t>(world));
    round.calls[static_cast<size_t>(rank)] = call;
    if (++round.arrived == world) {
      compute(round);
      round.done = true;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return round.done || aborted > 0; });
  }

  static torch::Tensor view(const void* data, size_t count, ncclDataType_t type) {
    return torch::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, torch_type(type));
  }

  void compute(const Round& round) const {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> sent;
    for (const auto& call : round.calls) {
      const auto count = call.kind == Kind::kReduceScatter ? call.count * round.calls.size() : call.count;
      sent.push_back(view(call.send, count, call.type).clone());
    }
    auto sum = sent[0].clone();
    for (size_t i = 1; i < sent.size(); ++i) {
      sum = round.calls[0].operation == ncclMax ? torch::maximum(sum, sent[i]) : sum.add_(sent[i]);
    }
    int64_t rank = 0;
    for (const auto& call : round.calls) {
      const auto count = call.kind == Kind::kAllGather ? call.count * sent.size() : call.count;
      auto out = view(call.receive, count, call.type);
      if (call.kind == Kind::kAllReduce || (call.kind == Kind::kReduce && rank == call.root)) out.copy_(sum);
      if (call.kind == Kind::kBroadcast) out.copy_(sent[static_cast<size_t>(call.root)]);
      if (call.kind == Kind::kAllGather) out.copy_(torch::cat(sent));
      if (call.kind == Kind::kReduceScatter) out.copy_(sum.view({world, -1})[rank]);
      ++rank;
    }
  }
};

std::mutex& registry_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::map<std::string, std::shared_ptr<Group>>& groups() {
  static std::map<std::string, std::shared_ptr<Group>> all;
  return all;
}

FakeNccl& state() {
  static FakeNccl nccl;
  return nccl;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int round = 0;
  int polls = 0;        // how many more polls return ncclInProgress
  bool joining = true;  // until all ranks have joined
};

namespace {

ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const Call& call) {
  if (fake_nccl().collective != ncclSuccess) return fake_nccl().collective;
  launch(*stream, [group = comm->group, number = comm->round++, rank = comm->rank, call] {
    group->meet(number, rank, call);
  });
  comm->polls = fake_nccl().polls_in_progress;
  return comm->polls > 0 ? ncclInProgress : ncclSuccess;
}

}  // namespace

namespace lockstep::testing {

FakeNccl& fake_nccl() { return state(); }

void reset_fake_nccl() {
  state() = {};
  groups().clear();
}

}  // namespace lockstep::testing

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  const std::lock_guard lock(registry_mutex());
  std::memset(id->internal, ++made, sizeof(id->internal));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int world, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;
  const std::lock_guard lock(registry_mutex());
  auto& group = groups()[std::string(id.internal, sizeof(id.internal))];
  if (!group) group = std::make_shared<Group>(world);
  const std::lock_guard group_lock(group->mutex);
  ++group->joined;
  *comm = new ncclComm{.group = group, .rank = rank};
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(registry_mutex());
  ++state().destroyed;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->group->mutex);
    ++comm->group->aborted;
    comm->group->changed.notify_all();
  }
  state().on_abort();
  const std::lock_guard lock(registry_mutex());
  ++state().aborted;
  delete comm;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "internal error";
}

const char* ncclGetLastError(ncclComm_t) { return fake_nccl().last_error; }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = ncclSuccess;
  if (comm->joining) {
    const std::lock_guard lock(comm->group->mutex);
    comm->joining = comm->group->joined < comm->group->world;
    if (comm->joining) *error = ncclInProgress;
    return ncclSuccess;
  }
  if (comm->polls > 0) {
    --comm->polls;
    *error = ncclInProgress;
  } else if (comm->round > 0) {
    *error = fake_nccl().after_collectives;
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ncclSuccess; }

ncclResult_t ncclGroupEnd() {
  return fake_nccl().group_end == ncclSuccess ? ncclInProgress : fake_nccl().group_end;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {Kind::kAllReduce, send, receive, count, type, 0, operation});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {Kind::kBroadcast, send, receive, count, type, root});
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {Kind::kAllGather, send, receive, count, type, 0});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {Kind::kReduceScatter, send, receive, count, type, 0, operation});
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {Kind::kReduce, send, receive, count, type, root, operation});
}
