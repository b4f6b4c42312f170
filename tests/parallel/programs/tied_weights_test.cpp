// A tensor under two names, as the table and the head of a language model: one parameter, under the first.
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/replicas.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/programs/programs.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/thread_processes.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Names = std::vector<std::string>;
const Names kOnce = {"head", "inner.weight", "inner.bias"};  // a module's own parameters come first

struct TiedNet : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& text) {  // (n, tokens) to logits (n, tokens, 7)
    return torch::linear(torch::tanh(inner(table(text))), head);
  }
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(7, 4));
  torch::Tensor head = register_parameter("head", table->weight);
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(4, 4));
};

// Each parameter once: LibTorch's parameters() has the tied one twice, and an optimizer would step it twice.
struct TiedLearner {
  std::shared_ptr<TiedNet> net = drawn_net<TiedNet>();
  torch::optim::AdamW adam{{net->head, net->inner->weight, net->inner->bias},
                           torch::optim::AdamWOptions(.02)};
};

Batch tied_texts() {
  const auto text = torch::arange(10 * 4).mul(5).remainder(23).remainder(7).view({10, 4});
  return {text.narrow(1, 0, 3), text.narrow(1, 1, 3)};
}

torch::Tensor sum_over_tokens(TiedNet& net, const torch::Tensor& text, const torch::Tensor& next) {
  return torch::cross_entropy_loss(net.forward(text).flatten(0, 1), next.flatten(), {}, at::Reduction::Sum);
}

Names names_of_tensors(const std::vector<NamedTensor>& tensors) {
  Names names;
  for (const auto& item : tensors) names.push_back(item.name);
  return names;
}

torch::Tensor flat(TiedNet& net) {
  return torch::cat(
      {net.table->weight.detach().flatten(), net.inner->weight.detach().flatten(), net.inner->bias.detach()});
}

torch::Tensor trained_by_plain_torch(int steps) {
  TiedLearner own;
  const auto rows = tied_texts();
  for (int i = 0; i < steps; ++i) {
    own.adam.zero_grad();
    (sum_over_tokens(*own.net, rows.input(), rows.target()) / rows.rows()).backward();
    own.adam.step();
  }
  return flat(*own.net);
}

}  // namespace

TEST_CASE("Trainer has tied weights once: in groups, optimizer and states, and they stay tied") {
  Names asked;
  TrainerOptions options;
  options.devices = {torch::kCPU};
  options.threads = 1;
  options.lr.lr = .02;
  options.replica.precision = Precision::kFp64;
  options.replica.optimizer.kind = OptimizerKind::kAdamW;
  options.replica.optimizer.weight_decay = .01;  // torch's default
  options.replica.optimizer.group = [&](const std::string& name, const torch::Tensor&) -> GroupOptions {
    asked.push_back(name);
    return {};
  };
  const auto factory =
      NetFactory<TiedNet>([] { return drawn_net<TiedNet>(); }).loss([](TiedNet& net, const Batch& in) {
        return sum_over_tokens(net, in.input(), in.target());
      });
  const auto rows = resident_rows(tied_texts());
  Trainer trainer(factory, rows, rows, options);
  CHECK(asked == kOnce);
  for (int i = 0; i < 3; ++i) trainer.step(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  auto& net = dynamic_cast<TiedNet&>(*trainer.model(0).module);
  CHECK(net.head.is_same(net.table->weight));
  CHECK(max_difference(flat(net), trained_by_plain_torch(3)) < 1e-12);
  CHECK(names_of_tensors(trainer.weights()) == kOnce);
  const auto state = trainer.state();
  CHECK(names_of_tensors(state.model) == kOnce);
  const auto optimizer = names_of_tensors(state.optimizer);
  CHECK(std::ranges::count(optimizer, "exp_avg.head") == 1);
  CHECK(std::ranges::count(optimizer, "exp_avg.table.weight") == 0);
}

TEST_CASE("Replicas have tied weights once: in sums and states, on any layout") {
  const auto expected = trained_by_plain_torch(3);
  for (const Layout& layout : {Layout{1}, Layout{2}, Layout{1, 1}, Layout{3}}) {
    INFO(text_of(layout) << " replicas");
    struct Found {
      torch::Tensor weights;
      Names synced, model, optimizer;
    };
    const auto all = by_process(processes_of(layout), [&](int process, const Group& group) {
      const auto local = static_cast<size_t>(layout[static_cast<size_t>(process)]);
      Replicas<TiedLearner> replicas(
          {.devices = std::vector<torch::Device>(local, torch::kCPU), .process_group = group, .threads = 1});
      replicas.attach("net", &TiedLearner::net);
      replicas.keep("adam", &TiedLearner::adam);
      std::vector<Found> found(local);
      const auto rows = tied_texts();
      for (int i = 0; i < 3; ++i) {
        replicas.step(std::pair(rows.input(), rows.target()),
                      [&](TiedLearner& own, const auto& shard, Step& step) {
                        const auto& [text, next] = shard;
                        own.adam.zero_grad();
                        (sum_over_tokens(*own.net, text, next) / step.rows()).backward();
                        step.wait();
                        own.adam.step();
                        auto& mine = found[static_cast<size_t>(step.rank() - replicas.first_rank())];
                        mine.synced = step.sync(own.net).names();
                        mine.weights = flat(*own.net).clone();
                      });
      }
      const auto state = replicas.state();
      for (auto& mine : found) {
        mine.model = names_of_tensors(state.model);
        mine.optimizer = names_of_tensors(state.optimizer);
      }
      return found;
    });
    for (size_t process = 0; process < all.size(); ++process) {
      for (const auto& found : all[process]) {
        CHECK(max_difference(found.weights, expected) < 1e-12);
        CHECK(found.synced == kOnce);
        if (process > 0) continue;  // whose states are complete
        CHECK(found.model == Names{"net.head", "net.inner.weight", "net.inner.bias"});
        CHECK(std::ranges::count(found.optimizer, "adam.exp_avg.net.head") == 1);
        CHECK(std::ranges::count(found.optimizer, "adam.exp_avg.net.table.weight") == 0);
      }
    }
  }
}
