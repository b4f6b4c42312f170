#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/tests/parallel/gradients/flat_fill_cases.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("the kernel that fills a flat buffer on a GPU writes each number once", "[cuda]") {
  check_flat_fills<float>(torch::Device("cuda:0"));
  check_flat_fills<double>(torch::Device("cuda:0"));
}

TEST_CASE("gradients of any layout are written into their views on a GPU", "[cuda]") {
  const auto on_gpu = torch::dtype(torch::kFloat32).device("cuda:0");
  const Params params{torch::zeros({3, 4}, on_gpu),
                      torch::zeros({2, 3, 4, 5}, on_gpu).contiguous(torch::MemoryFormat::ChannelsLast),
                      torch::zeros({7}, on_gpu), torch::zeros({6}, on_gpu)};
  const auto flat = flat_zeros_like(params);
  flat.flat.fill_(5);
  const std::vector<torch::Tensor> given{torch::rand({4, 3}, on_gpu).t(), torch::rand({2, 3, 4, 5}, on_gpu),
                                         torch::rand({7}, on_gpu).to(torch::kBFloat16), torch::Tensor()};
  fill_views(flat.views, given);
  for (size_t i = 0; i < 3; ++i) CHECK(flat.views[i].equal(given[i].to(torch::kFloat32)));
  CHECK(flat.views[3].eq(0).all().item<bool>());
}
