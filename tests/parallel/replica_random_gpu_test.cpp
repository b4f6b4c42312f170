// On a GPU operations draw from its own generator: they get none of a CPU, which torch would refuse.
#include <torch/library.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <optional>

#include <lockstep/parallel/replica_random.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

int with_generator = 0, without = 0;  // calls of normal_ on a GPU

at::Tensor& normal(at::Tensor& self, double, double, std::optional<at::Generator> generator) {
  ++(generator ? with_generator : without);
  return self;
}

}  // namespace

TEST_CASE("a replica's generator is not given to operations on a GPU") {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("normal_", TORCH_FN(normal));
  const auto on_gpu = torch::dtype(torch::kFloat32).device(fake_gpu(0));
  const ReplicaRandom random(0, 0, 0);
  auto tensor = torch::empty({3}, on_gpu);
  tensor.normal_();
  torch::randn({3}, on_gpu);
  torch::randn_like(tensor);
  CHECK(without == 3);
  CHECK(with_generator == 0);
}
