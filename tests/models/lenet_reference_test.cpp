// LeNet against values that Python's torch computed: tests/reference/lenet_reference.py.

#include <lockstep/tests/catch.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include <lockstep/models/lenet.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/train_batch.h>
#include <lockstep/support/files/sha256.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/reference.h>
#include <lockstep/tests/support/torch_lenet.h>

using namespace lockstep;
using namespace lockstep::testing;
using nlohmann::json;

namespace {

std::string sha256(const torch::Tensor& tensor) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes())));
  return hash.hex();
}

// The batch of lenet_step.json.
Batch step_batch(int64_t rows) {
  const auto i = torch::arange(rows * 28 * 28, torch::kFloat64);
  return {((i * 37).remainder(256) / 255).view({rows, 1, 28, 28}), torch::arange(rows).mul(3).remainder(10)};
}

}  // namespace

TEST_CASE("initial weights are bit for bit those of Python's torch") {
  const auto seeds = reference("lenet_initial.json").at("seeds");
  REQUIRE(seeds.size() == 2);
  for (const auto& [seed, tensors] : seeds.items()) {
    const LeNet net(std::stoull(seed));
    REQUIRE(tensors.size() == 8);
    for (const auto& item : net->named_parameters()) {
      INFO("seed " << seed << ", " << item.key());
      CHECK(sha256(item.value()) == tensors.at(item.key()).at("sha256").get<std::string>());
    }
  }
}

TEST_CASE("logits, loss, gradients and one update are those of Python's torch") {
  const auto python = reference("lenet_step.json");
  const auto rows = python.at("rows").get<int64_t>();
  const auto batch = step_batch(rows);
  const LeNet net(python.at("seed").get<uint64_t>(), torch::kFloat64);

  const auto logits = lenet(batch.input(), net->parameters());
  for (int64_t c = 0; c < 10; ++c)
    CHECK(logits[0][c].item<double>() ==
          Approx(python.at("logits_row0")[static_cast<size_t>(c)].get<double>()).epsilon(1e-10));

  const int world = GENERATE(1, 2, 3);
  INFO(world << " replicas");
  ReplicaWorkers workers(std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU), 1);
  std::vector<Params> params;
  for (int rank = 0; rank < world; ++rank) params.push_back(get_params(net->parameters(), torch::kCPU));
  const auto sums =
      train_batch(batch.input(), batch.target(), params, lenet, python.at("lr").get<double>(), workers);
  CHECK(torch::stack(sums).sum(0)[0].item<double>() ==
        Approx(python.at("loss_sum").get<double>()).epsilon(1e-12));

  const auto gradients = torch_gradients(net->parameters(), batch.input(), batch.target());
  const auto names = net->named_parameters().keys();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& expected = python.at("params").at(names[i]);
    const double largest = expected.at("grad_abs_max").get<double>();
    CHECK(max_abs(gradients[i]) == Approx(largest).epsilon(1e-10));
    for (size_t k = 0; k < expected.at("at").size(); ++k) {
      INFO(names[i] << ", element " << expected.at("at")[k]);
      const auto at = expected.at("at")[k].get<int64_t>();
      const auto updated = params.back()[i].detach().flatten()[at].item<double>();
      CHECK(std::abs(gradients[i].flatten()[at].item<double>() - expected.at("grad")[k].get<double>()) <=
            1e-10 * largest);
      CHECK(std::abs(updated - expected.at("updated")[k].get<double>()) <= 1e-10 * largest);
    }
  }
}
