#include <lockstep/data/images/augment.h>
#include <lockstep/data/images/normalize.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/tests/data/kernels/augment_images_cases.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("images are augmented on a GPU as on a CPU, bit for bit", "[cuda]") {
  check_all_augmented(torch::Device("cuda:0"));
}

TEST_CASE("sources on a GPU give the augmented and normalised images of those on a CPU", "[cuda]") {
  const auto bytes = torch::arange(9 * 3 * 8 * 8).mul(37).remainder(251).to(torch::kUInt8).view({9, 3, 8, 8});
  const auto resident = resident_rows({{"images", bytes}, {"labels", torch::arange(9), Role::kTarget}});
  const auto augmentation = parse_augmentation("resized-crop,flip,cutout:3");
  for (const Normalization& by : {Normalization{}, Normalization{{.4, .5, .6}, {.2, .3, .1}}}) {
    const auto sources = normalized(augmented(resident, augmentation, 7), by);
    const auto gathered_on = [&](torch::Device device) {
      const auto source = sources(device);
      Batch batch(std::make_shared<const BatchSpec>(source->spec()));
      source->gather(torch::tensor({8, 0, 3, 3}, torch::kInt64).to(device), /*epoch=*/2, batch);
      return batch.to(torch::kCPU);
    };
    const auto expected = gathered_on(torch::kCPU), found = gathered_on(torch::Device("cuda:0"));
    CHECK(found.input().equal(expected.input()));
    CHECK(found.target().equal(expected.target()));
  }
}
