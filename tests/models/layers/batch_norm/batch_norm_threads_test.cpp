// The kernels on arrays, without torch: data races, how their last blocks finish sums, and replays.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <lockstep/models/layers/batch_norm/batch_norm_backward_kernel.h>
#include <lockstep/models/layers/batch_norm/batch_norm_forward_kernel.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// The arrays of a layer. What the kernels must set themselves starts with garbage.
template <class T>
struct LayerArrays {
  LayerArrays(int64_t of_rows, int64_t of_c, bool with_residual = true)
      : rows(of_rows),
        c(of_c),
        x(elements()),
        residual(with_residual ? elements() : 0),
        dy(elements()),
        y(elements()),
        dx(elements()),
        dresidual(residual.size()),
        weight(channels(), 2),
        bias(channels(), -1),
        mean(channels()),
        var(channels()),
        centre(channels()),
        invstd(channels()),
        dweight(channels()),
        dbias(channels()),
        workspace(static_cast<size_t>(batch_norm_workspace(rows, c)), 1e30f),
        mask(elements() / static_cast<size_t>(batch_norm_vector(c, sizeof(T))), 0xa5),
        arrived(static_cast<size_t>(batch_norm_counters(c))),
        backward_arrived(arrived.size(), 12345) {
    for (size_t i = 0; i < elements(); ++i) {
      x[i] = from_float<T>(static_cast<float>(i * 37 % 101));
      dy[i] = from_float<T>(static_cast<float>(i * 29 % 11) - 5);
    }
    for (size_t i = 0; i < residual.size(); ++i)
      residual[i] = from_float<T>(static_cast<float>(i * 41 % 7) - 3);
  }

  size_t elements() const { return static_cast<size_t>(rows * c); }
  size_t channels() const { return static_cast<size_t>(c); }

  BatchNormForward<T> forward() {
    return {.rows = rows,
            .c = c,
            .x = x.data(),
            .residual = residual.empty() ? nullptr : residual.data(),
            .weight = weight.data(),
            .bias = bias.data(),
            .conv_bias = bias.data(),
            .eps = 1e-5,
            .momentum = .1,
            .running_mean = mean.data(),
            .running_var = var.data(),
            .y = y.data(),
            .centre = centre.data(),
            .invstd = invstd.data(),
            .batches = &batches,
            .mask = mask.data(),
            .workspace = workspace.data(),
            .arrived = arrived.data(),
            .backward_arrived = backward_arrived.data()};
  }

  BatchNormBackward<T> backward() {
    return {.rows = rows,
            .c = c,
            .x = x.data(),
            .weight = weight.data(),
            .centre = centre.data(),
            .invstd = invstd.data(),
            .dy = dy.data(),
            .dx = dx.data(),
            .dresidual = dresidual.empty() ? nullptr : dresidual.data(),
            .dweight = dweight.data(),
            .dbias = dbias.data(),
            .mask = mask.data(),
            .workspace = workspace.data(),
            .arrived = backward_arrived.data()};
  }

  template <class Launch>
  void run(const Launch& launch) {
    batch_norm_forward_with(launch, forward());
    batch_norm_backward_with(launch, backward());
  }

  // All results but the running statistics.
  std::vector<std::vector<float>> results() const {
    return {floats(y), floats(dx), floats(dresidual), centre, invstd, dweight, dbias};
  }

  static std::vector<float> floats(const std::vector<T>& values) {
    std::vector<float> wide;
    for (const T value : values) wide.push_back(to_float(value));
    return wide;
  }

  void spoil_results() {
    for (auto* result : {&y, &dx, &dresidual}) result->assign(result->size(), from_float<T>(-7));
    for (auto* result : {&centre, &invstd, &dweight, &dbias}) result->assign(result->size(), -7);
  }

  bool counters_are_zero() const {
    return arrived == std::vector<unsigned>(arrived.size()) && backward_arrived == arrived;
  }

  int64_t rows, c;
  std::vector<T> x, residual, dy, y, dx, dresidual;
  std::vector<float> weight, bias, mean, var, centre, invstd, dweight, dbias, workspace;
  std::vector<uint8_t> mask;
  std::vector<unsigned> arrived, backward_arrived;
  int64_t batches = 40;
};

// Keeps launches for later, as a captured graph.
struct CapturingLaunch {
  std::vector<std::function<void()>>* graph;

  template <class... Params, class... Args>
  void operator()(void (*kernel)(Params...), dim3 grid, dim3 block, Args... args) const {
    graph->push_back([=] { FibreLaunch{ThreadOrder::kMixed}(kernel, grid, block, args...); });
  }
};

// The last block adds up what all blocks have stored.
void sum_by_last_block(const int* values, int* stored, unsigned* arrived, int* sum) {
  const auto i = blockIdx.x * blockDim.x + threadIdx.x;
  stored[i] = values[i];
  if (!arrives_last(arrived, gridDim.x) || threadIdx.x != 0) return;
  for (unsigned k = 0; k < gridDim.x * blockDim.x; ++k) *sum += stored[k];
}

}  // namespace

TEST_CASE("threads of a batch normalisation have no data race and give the same result") {
  const int64_t c = GENERATE(8, 5, 40);
  LayerArrays<float> in_threads(300, c), in_fibres(300, c);
  in_threads.run(ThreadLaunch{});
  in_fibres.run(FibreLaunch{});
  CHECK(in_threads.results() == in_fibres.results());
  CHECK(in_threads.mean == in_fibres.mean);
  CHECK(in_threads.var == in_fibres.var);
  CHECK(in_threads.counters_are_zero());
}

TEST_CASE("the last of blocks that run at the same time sees what all have stored, and resets the counter") {
  std::vector<int> values(8 * 32), stored(values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * 7 % 13);
  unsigned arrived = 0;
  int sum = 0;
  for (int run = 1; run <= 3; ++run) {
    run_in_threads({8}, {32}, BlockTiming::kAllAtOnce,
                   [&] { sum_by_last_block(values.data(), stored.data(), &arrived, &sum); });
    CHECK(arrived == 0);
    CHECK(sum == run * 1526);  // 7 i mod 13 for i < 256: 19 * 78 for i < 247, and 44
  }
}

TEST_CASE("blocks of sums are at most as many as an H100 runs at once, three per multiprocessor") {
  struct Expected {
    int64_t rows, c;
    int vector;
    int64_t tiles, chunks;
  };
  // ResNet-18's layers of 256 images of 28 x 28 in bfloat16 and float, and one with more tiles than blocks.
  for (const auto& one : std::vector<Expected>{{200704, 64, 8, 2, 198},
                                               {50176, 128, 8, 4, 99},
                                               {12544, 256, 8, 8, 49},
                                               {4096, 512, 8, 16, 16},
                                               {200704, 64, 4, 2, 198},
                                               {4096, 512, 4, 16, 24},
                                               {5000, 33, 1, 2, 157},
                                               {64, 16384, 8, 512, 1}}) {
    INFO(one.rows << " x " << one.c << ", " << one.vector << " at once");
    const auto tiles = batch_norm_sum_tiles(one.rows, one.c, one.vector);
    CHECK(tiles.tiles == one.tiles);
    CHECK(tiles.tiles == batch_norm_counters(one.c));
    CHECK(tiles.chunks == one.chunks);
    CHECK((tiles.tiles > 396 || tiles.tiles * tiles.chunks <= 396));
    CHECK(tiles.lanes * one.vector <= 32);
    CHECK(tiles.chunks * tiles.chunk_rows >= one.rows);
  }
}

TEST_CASE("sums of a batch normalisation have the same bits in any order of blocks") {
  // Many blocks, several tiles, the last of which has fewer channels; a vector width of 1; one block.
  for (const auto& [rows, c] : {std::pair(int64_t{3001}, int64_t{72}), {2999, 35}, {7, 8}}) {
    INFO(rows << " x " << c);
    LayerArrays<float> forward(rows, c), backward(rows, c), mixed(rows, c);
    forward.run(FibreLaunch{ThreadOrder::kForward});
    backward.run(FibreLaunch{ThreadOrder::kBackward});
    mixed.run(FibreLaunch{ThreadOrder::kMixed});
    CHECK(backward.results() == forward.results());
    CHECK(mixed.results() == forward.results());
    CHECK(mixed.mean == forward.mean);
    CHECK(mixed.var == forward.var);
    CHECK((forward.counters_are_zero() && backward.counters_are_zero() && mixed.counters_are_zero()));
    CHECK(forward.batches == 41);
  }
}

TEST_CASE("a batch normalisation is two kernels in each direction, which can be replayed") {
  LayerArrays<Bf16> once(3001, 72), replayed(3001, 72);
  once.run(FibreLaunch{});
  std::vector<std::function<void()>> graph;
  batch_norm_forward_with(CapturingLaunch{&graph}, replayed.forward());
  CHECK(graph.size() == 2);
  batch_norm_backward_with(CapturingLaunch{&graph}, replayed.backward());
  CHECK(graph.size() == 4);
  for (int replay = 1; replay <= 3; ++replay) {
    replayed.spoil_results();
    for (const auto& kernel : graph) kernel();
    CHECK(replayed.results() == once.results());
    CHECK(replayed.counters_are_zero());
    CHECK(replayed.batches == 40 + replay);
  }
  // Three times a step of a tenth towards the same value: 1 - .9^3 of the way, from 0.
  for (size_t i = 0; i < replayed.mean.size(); ++i)
    CHECK_THAT(replayed.mean[i], Catch::Matchers::WithinRel(once.mean[i] * 2.71, 1e-5));
}

TEMPLATE_TEST_CASE("the mask has a bit for each value that ReLU passes, and dz is the gradient of these", "",
                   float, Bf16) {
  const bool residual = GENERATE(true, false);
  // Rows that no byte or word divides, channels of one vector, of several tiles, and of vectors of 1.
  for (const auto& [rows, c] : {std::pair(int64_t{13}, int64_t{8}), {37, 40}, {67, 104}, {9, 3}, {5, 12}}) {
    INFO(rows << " x " << c << (residual ? " with a residual" : ""));
    LayerArrays<TestType> layer(rows, c, residual);
    // Channel 0: z is the residual's, often exactly 0, or 0. Channel 1: NaN, which passes, as in torch.
    for (int64_t row = 0; row < rows; ++row) layer.x[static_cast<size_t>(row * c)] = from_float<TestType>(5);
    layer.bias[0] = 0;
    layer.x[1] = from_float<TestType>(std::numeric_limits<float>::quiet_NaN());
    layer.run(FibreLaunch{});
    const auto vector = static_cast<size_t>(batch_norm_vector(c, sizeof(TestType)));
    std::vector<uint8_t> expected(layer.mask.size());
    std::vector<double> sums(layer.channels());
    size_t passed = 0;
    for (size_t i = 0; i < layer.elements(); ++i) {
      const bool passes = !(to_float(layer.y[i]) <= 0);
      passed += passes;
      if (passes) expected[i / vector] = static_cast<uint8_t>(expected[i / vector] | 1u << i % vector);
      const float dz = passes ? to_float(layer.dy[i]) : 0;
      sums[i % layer.channels()] += dz;
      if (residual) CHECK(to_float(layer.dresidual[i]) == dz);
    }
    CHECK(passed > 0);
    CHECK(passed < layer.elements());
    CHECK(layer.mask == expected);
    for (size_t k = 0; k < layer.channels(); ++k) CHECK(layer.dbias[k] == sums[k]);  // small whole numbers
  }
}
