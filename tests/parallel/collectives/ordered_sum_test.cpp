// Sums of gradients that travel between processes as bf16 or fp16.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <cmath>
#include <limits>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/collectives/ordered_sum.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using torch::kFloat32;
using torch::kFloat64;
using torch::Tensor;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A type of 16 bits.
struct Format {
  Compress compress;
  int digits;          // of a number's significand, with the first one
  int least_exponent;  // of numbers with all these digits
  double largest;
  double unit() const { return std::ldexp(1, -digits); }  // bound of the relative error of rounding
};

constexpr Format kBf16{Compress::kBf16, 8, -126, 0x1.FEp127}, kFp16{Compress::kFp16, 11, -14, 65504};
constexpr Format kFormats[] = {kBf16, kFp16};

// To the nearest number of the format, ties to even, in arithmetic of its own.
float rounded(double number, const Format& format) {
  if (number == 0 || !std::isfinite(number)) return static_cast<float>(number);
  const int last_digit = std::max(std::ilogb(number), format.least_exponent) - (format.digits - 1);
  const double nearest = std::ldexp(std::nearbyint(std::ldexp(number, -last_digit)), last_digit);
  return std::abs(nearest) > format.largest ? std::copysign(kInfinity, static_cast<float>(number))
                                            : static_cast<float>(nearest);
}

// Numbers of both signs and different sizes.
Numbers gradients_of(int world, int64_t n) { return rounded_numbers(world, n, -27, 8); }

// Each process's sum rounded, these added in float in the order of processes, the total rounded.
Tensor sums_by_hand(const Numbers& gradients, const Layout& layout, const Format& format) {
  std::vector<float> totals;
  for (size_t i = 0; i < gradients.front().size(); ++i) {
    float total = 0;
    for (const float sum : sums_of_processes(gradients, layout, i)) total += rounded(sum, format);
    totals.push_back(rounded(total, format));
  }
  return torch::tensor(totals);
}

// The results by rank.
Tensors summed(const Layout& layout, Compress compress, Tensors tensors) {
  in_processes(layout,
               [&](int, Communicator& communicator) { allreduce_gradients_all(communicator, tensors); },
               {.devices = {}, .compress = compress});
  return tensors;
}

}  // namespace

TEST_CASE("a compressed sum rounds each process's sum and the total, and nothing else") {
  for (const auto& format : kFormats) {
    for (const auto& layout : kLayouts) {
      const int world = world_of(layout), processes = processes_of(layout);
      std::vector<Numbers> cases;
      for (const int64_t n : {1, processes - 1, processes, world + 1, 7, 997, 20'000}) {
        cases.push_back(gradients_of(world, n));
      }
      std::vector<Tensors> results;
      for (const auto& one : cases) results.push_back(tensors_of(one));
      in_processes(layout,
                   [&](int, Communicator& communicator) {
                     for (const auto& tensors : results) allreduce_gradients_all(communicator, tensors);
                   },
                   {.devices = {}, .compress = format.compress});
      for (size_t i = 0; i < cases.size(); ++i) {
        INFO(text_of(layout) << " replicas, " << cases[i][0].size() << " in "
                             << name_of(kCompressNames, format.compress));
        CHECK(all_are(sums_by_hand(cases[i], layout, format), results[i]));
      }
    }
  }
}

TEST_CASE("a compressed sum of complex numbers is that of their parts") {
  for (const auto& format : kFormats) {
    const Layout layout{1, 3, 2};
    INFO(name_of(kCompressNames, format.compress));
    const auto gradients = gradients_of(world_of(layout), 998);
    Tensors complex;
    for (const auto& parts : tensors_of(gradients)) {
      complex.push_back(torch::view_as_complex(parts.view({499, 2})));
    }
    const auto expected = torch::view_as_complex(sums_by_hand(gradients, layout, format).view({499, 2}));
    CHECK(all_are(expected, summed(layout, format.compress, complex)));
  }
}

TEST_CASE("no elements are a sum, too") {
  for (const auto& result : summed({2, 1}, Compress::kBf16, inputs(3, 0, kFloat32))) {
    CHECK(result.numel() == 0);
  }
}

TEST_CASE("the memory of a compressed sum: 2 bytes to send and to receive, and a part in float") {
  const auto bytes = [](int64_t n, int processes) {
    return ordered_sum_bytes(n, processes, torch::kBFloat16);
  };
  CHECK(bytes(12, 2) == 2 * 2 * 12 + 4 * 6);
  CHECK(bytes(10, 3) == 2 * 2 * 12 + 4 * 4);  // filled up to three parts of four
  CHECK(bytes(1, 4) == 2 * 2 * 4 + 4);
  CHECK(bytes(0, 4) == 0);
  CHECK(ordered_sum_bytes(10, 3, torch::kFloat32) == 2 * 4 * 12);  // a part is added where it came
}

// Let x_i be process i's sum, X = |x_0| + |x_1| + ..., and u = format.unit(). Rounding x_i is off by at most
// u |x_i|, and all of them together by u X. Their sum is at most (1 + u) X, so rounding it is off by at most
// u (1 + u) X: together (2 u + u^2) X, which is below 2.005 u X. The additions in float, of the processes and
// within one, are each off by at most 2^-24 of a number of at most about X': the sum of all ranks' |x|. With
// six ranks that is below .0015 u X'. Hence 2.01 u X', as X' is no less than X. A number below 2^-14 is off
// by up to 2^-25 in fp16, with or without digits to lose: (processes + 1) 2^-25.
TEST_CASE("the error of a compressed sum has a bound, whatever the number of processes") {
  constexpr int64_t kElements = 50'021;
  for (const auto& format : kFormats) {
    for (const auto& layout : kLayouts) {
      INFO(text_of(layout) << " replicas, " << name_of(kCompressNames, format.compress));
      const auto given = tensors_of(gradients_of(world_of(layout), kElements));
      Tensors copies;
      for (const auto& tensor : given) copies.push_back(tensor.clone());
      const auto results = summed(layout, format.compress, copies);
      CHECK(all_are(results.front(), results));
      auto sum = torch::zeros({kElements}, kFloat64), sizes = torch::zeros({kElements}, kFloat64);
      for (const auto& tensor : given) {
        sum.add_(tensor.to(kFloat64));
        sizes.add_(tensor.to(kFloat64).abs());
      }
      const auto small = format.compress == Compress::kFp16 ? (processes_of(layout) + 1) * 0x1p-25 : 0;
      const auto error = (results.front().to(kFloat64) - sum).abs();
      CHECK((error <= 2.01 * format.unit() * sizes + small).all().item<bool>());
      // The bound is no formality: some errors come near it.
      CHECK((error / sizes).max().item<double>() > .5 * format.unit());
    }
  }
}

TEST_CASE("without compression gradients are summed exactly, and with it everything else is") {
  const Layout layout{1, 3, 2};
  const int world = world_of(layout);
  const auto exact = exact_sum(inputs(world, 997, kFloat32));
  CHECK(all_are(exact, summed(layout, Compress::kNone, inputs(world, 997, kFloat32))));
  for (const auto& result : summed(layout, Compress::kBf16, inputs(world, 997, kFloat32))) {
    CHECK_FALSE(result.equal(exact));  // or the rest of this test would show nothing
  }
  for (const auto dtype : {kFloat64, torch::kBFloat16, torch::kInt64}) {
    INFO(dtype);
    CHECK(all_are(exact_sum(inputs(world, 997, dtype)),
                  summed(layout, Compress::kBf16, inputs(world, 997, dtype))));
  }
  const auto sums = inputs(world, 997, kFloat32), copies = inputs(world, 997, kFloat32);
  const auto gathered = room_for(copies);
  const auto all = torch::stack(copies), first = copies[1].clone();
  in_processes(layout,
               [&](int, Communicator& communicator) {
                 allreduce_all(communicator, sums);
                 gather_all(communicator, copies, gathered);
                 broadcast_all(communicator, copies, 1);
               },
               {.devices = {}, .compress = Compress::kBf16});
  CHECK(all_are(exact, sums));
  CHECK(all_are(all, gathered));
  CHECK(all_are(first, copies));
}

TEST_CASE("what does not fit into fp16 becomes infinite, and no number stays none, on every rank") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  //                         too large   the total is  largest  too small       not finite
  const Numbers gradients{{70'000, -1e30F, 50'000, 65'504, 0x1p-26F, 0x1p-24F, kInfinity, nan, kInfinity},
                          {1, 2, 50'000, 0, 0x1p-26F, 0, 1, 1, -kInfinity}};
  const Layout layout{1, 1};
  const auto in_fp16 = summed(layout, Compress::kFp16, tensors_of(gradients));
  const auto in_bf16 = summed(layout, Compress::kBf16, tensors_of(gradients));
  CHECK(all_are(in_fp16[0], in_fp16));
  CHECK(all_are(in_bf16[0], in_bf16));
  const auto is_number = torch::tensor({0, 1, 2, 3, 4, 5, 6}, torch::kInt64);
  CHECK(in_fp16[0]
            .index_select(0, is_number)
            .equal(torch::tensor({kInfinity, -kInfinity, kInfinity, 65'504.F, 0.F, 0x1p-24F, kInfinity})));
  CHECK(in_bf16[0].index_select(0, is_number).equal(sums_by_hand(gradients, layout, kBf16).narrow(0, 0, 7)));
  CHECK(in_bf16[0].narrow(0, 0, 6).isfinite().all().item<bool>());
  for (const auto& result : {in_fp16[0], in_bf16[0]})
    CHECK(result.narrow(0, 7, 2).isnan().all().item<bool>());
}

TEST_CASE("compressed sums and others can be posted before the first wait") {
  constexpr size_t kRounds = 8;
  const Layout layout{1, 3, 2};
  const int world = world_of(layout);
  std::vector<Numbers> gradients;
  std::vector<Tensors> compressed, exact;  // [round][rank]
  for (size_t round = 0; round < kRounds; ++round) {
    gradients.push_back(gradients_of(world, 31 * static_cast<int64_t>(round) + 1));
    compressed.push_back(tensors_of(gradients.back()));
    exact.push_back(inputs(world, 50, kFloat32));
  }
  in_processes(layout,
               [&](int, Communicator& communicator) {
                 std::vector<Work> works;
                 for (int local = 0; local < communicator.local_size(); ++local) {
                   auto& endpoint = communicator.endpoint(local);
                   const auto rank = static_cast<size_t>(endpoint.rank());
                   for (size_t round = 0; round < kRounds; ++round) {
                     works.push_back(endpoint.allreduce_gradients(compressed[round][rank]));
                     works.push_back(endpoint.allreduce_sum(exact[round][rank]));
                   }
                 }
                 for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
               },
               {.devices = {}, .compress = Compress::kBf16});
  for (size_t round = 0; round < kRounds; ++round) {
    INFO("round " << round);
    CHECK(all_are(sums_by_hand(gradients[round], layout, kBf16), compressed[round]));
    CHECK(all_are(exact_sum(inputs(world, 50, kFloat32)), exact[round]));
  }
}

TEST_CASE("a compressed sum ends when another process is gone, also between its two exchanges") {
  for (const bool halfway : {false, true}) {
    std::string error;
    run_processes(2, [&](int process, const Group& group) {
      const auto channel = open_channel(*group);
      if (process == 1) {
        const auto parts = torch::zeros({2, 5}, torch::kBFloat16);
        if (halfway) channel->all_to_all(parts, torch::zeros_like(parts)).get();
        return vanish(*group);
      }
      OrderedSum sum(*channel, 2, torch::kBFloat16, torch::ones({10}));
      error = refusal_of<PeerError>([&] {
        sum.send_total();
        if (halfway) sum.total();  // else it ends without an error
      });
    });
    CHECK(error == "process 1 is gone");
  }
}

TEST_CASE("a trace names compressed sums") {
  Trace trace;
  run_processes(2, [&](int process, const Group& group) {
    const auto communicator = communicator_of(
        {1, 1}, process, group,
        {.devices = {}, .compress = Compress::kFp16, .trace = process == 0 ? &trace : nullptr});
    allreduce_gradients_all(*communicator, inputs(2, 10, kFloat32));
    allreduce_all(*communicator, inputs(2, 10, kFloat32));
  });
  std::vector<std::string> names;
  for (const auto& event : trace.events()) names.push_back(event.name);
  CHECK(names == std::vector<std::string>{"allreduce in fp16 0.000 MB", "allreduce 0.000 MB"});
}

TEST_CASE("compression without other processes, and different ones in each, are refused") {
  CHECK_THROWS_WITH(make_communicator({.devices = {torch::kCPU, torch::kCPU}, .compress = Compress::kBf16}),
                    "compress bf16 rounds what travels between processes, but this process is alone");
  const auto found = by_process(2, [&](int process, const Group& group) {
    const CommunicatorOptions options{.devices = {},
                                      .compress = process == 0 ? Compress::kNone : Compress::kFp16};
    return refusal_of([&] { communicator_of({1, 1}, process, group, options); });
  });
  for (const auto& text : found) {
    CHECK(text == "the communicators differ: process 1 has compress fp16 where process 0 has compress none");
  }
}
