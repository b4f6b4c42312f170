#include <lockstep/app/bench/partition/scheme.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/split_batch.h>

namespace lockstep {
namespace {

class DataParallel : public PartitionScheme {
 public:
  DataParallel(Mesh& mesh, const PartitionTask& task)
      : PartitionScheme(mesh),
        layers_(task.network.layers),
        batch_(task.batch.rows()),
        communicator_(make_communicator(
            {.devices = {mesh.devices().begin(), mesh.devices().end()}, .threads = mesh.threads()})),
        replicas_(static_cast<size_t>(mesh.size())) {
    const auto shards = split_batch(task.batch, mesh.devices());
    mesh.run([&](int rank) {
      try {
        set_up(rank, task.params, shards[static_cast<size_t>(rank)]);
      } catch (...) {
        DataParallel::abort(std::current_exception());
        throw;
      }
    });
  }

  void forward(int rank) override {
    auto& replica = of(rank);
    if (replica.y.size(0) > 0)
      replica.loss = mean_loss(run_layers(layers_, replica.X, replica.params), replica.y, batch_);
  }

  // The last update set the gradients to zero; those of a device without rows stay zero.
  void backward(int rank) override {
    auto& replica = of(rank);
    if (replica.y.size(0) == 0) return replica.sync->allreduce_all();
    replica.loss.backward();
    replica.sync->wait();
    replica.loss.reset();
  }

  const Params& parameters(int rank) const override { return replicas_[static_cast<size_t>(rank)].params; }

  std::vector<Params> gradients() const override {
    std::vector<Params> copies;
    for (int rank = 0; rank < mesh().size(); ++rank) copies.push_back(host_gradients(rank));
    return copies;
  }

  void abort(std::exception_ptr error) override { communicator_->endpoint(0).abort(std::move(error)); }

 private:
  struct Replica {
    torch::Tensor X, y;  // its rows
    Params params;
    torch::nn::Module module;  // holds the parameters for GradientSync
    std::unique_ptr<GradientSync> sync;
    torch::Tensor loss;
  };

  void set_up(int rank, const Params& params, const Batch& shard) {
    auto& replica = of(rank);
    replica.X = rows_for(shard.input(), mesh().device(rank));
    replica.y = shard.target();
    replica.params = get_params(params, mesh().device(rank));
    for (size_t i = 0; i < params.size(); ++i) {
      replica.module.register_parameter(fmt::format("parameter{}", i), replica.params[i]);
    }
    const auto count_and_sum = [this](Endpoint& endpoint, const GradientBucket& bucket) {
      const auto bytes = static_cast<int64_t>(bucket.gradients.nbytes());
      if (endpoint.rank() == 0)
        mesh().count({.bytes = 2 * (mesh().size() - 1) * bytes, .synchronisations = 1});
      return endpoint.allreduce_gradients(bucket.gradients);
    };
    replica.sync = std::make_unique<GradientSync>(communicator_->endpoint(rank),
                                                  GradientSyncOptions{.hook = count_and_sum});
    replica.sync->attach(replica.module);
  }

  Replica& of(int rank) { return replicas_[static_cast<size_t>(rank)]; }

  const std::vector<Layer> layers_;
  const int64_t batch_;
  const std::unique_ptr<Communicator> communicator_;
  std::vector<Replica> replicas_;  // after communicator_, which they use
};

}  // namespace

SchemePtr data_parallel(Mesh& mesh, const PartitionTask& task) {
  return std::make_unique<DataParallel>(mesh, task);
}

}  // namespace lockstep
