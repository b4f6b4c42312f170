// Fuzzes values of flags: device lists, shares, numbers of bytes, links, numbers. Every parser gets every
// text.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/app/cli/byte_size.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

std::string outcomes;  // of all parsers

template <class Code>
bool accepted(Code code) {
  const bool taken = fuzz::accepted(code);
  outcomes += fuzz::last_outcome + ';';
  return taken;
}

void check_devices(const std::string& text, int gpus) {
  std::vector<torch::Device> devices;
  if (!accepted([&] { devices = parse_devices(text, gpus); })) return;
  require(!devices.empty() && devices.size() <= 1024, "1 to 1024 replicas");
  std::string list;
  for (const auto& device : devices) {
    require(device.is_cpu() || (device.is_cuda() && device.index() >= 0 && device.index() < gpus),
            "devices are there");
    list += (list.empty() ? "" : ",") + device.str();
  }
  require(parse_devices(list, gpus) == devices, "a list of plain names is the same list");
}

// By largest remainders: each shard is its share of the rows, rounded up or down.
void check_split(const std::string& text, int world) {
  std::vector<double> shares;
  const auto parse = [&] {
    shares = parse_shares(text);
    shard_sizes(0, world, shares);  // refuses those that give no split
  };
  if (!accepted(parse)) return;
  require(shares.size() == static_cast<size_t>(world), "one share per replica");
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (const int64_t rows : {0L, 1L, 7L, 256L, 60'000L, 1L << 31}) {
    const auto sizes = shard_sizes(rows, world, shares);
    require(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == rows, "the shards sum to the batch");
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double part = static_cast<double>(rows) * (shares[i] / sum);
      require(sizes[i] >= 0 && std::abs(static_cast<double>(sizes[i]) - part) < 1 + 1e-6,
              "each is its part, rounded");
      require(shares[i] > 0 || sizes[i] == 0, "no share, no rows");
    }
  }
}

void check_bytes(const std::string& text) {
  int64_t bytes = 0;
  if (!accepted([&] { bytes = parse_bytes(text); })) return;
  require(bytes >= 0 && bytes <= int64_t{1} << 40, "0 to 1024G");
  require(parse_bytes(bytes_text(bytes)) == bytes, "bytes come back");
}

void check_link(const std::string& text) {
  Link link;
  if (!accepted([&] { link = parse_link(text); })) return;
  for (const double value : {link.alpha_2, link.alpha_8, link.beta_2, link.beta_8}) {
    require(std::isfinite(value) && value > 0, "a link has finite, positive numbers");
  }
}

// Compares with what C's functions read.
void check_numbers(const std::string& text) {
  auto word = text;
  const bool whole = non_negative_int(1000)(word).empty();
  if (whole) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    require(end == text.data() + text.size() && value >= 0 && value <= 1000, "C reads the same whole number");
  }
  require(!positive_int(1000)(word).empty() || whole, "what is positive is not negative");
  if (positive_number()(word).empty()) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    require(end == text.data() + text.size() && std::isfinite(value) && value > 0, "C reads the same number");
  }
  const bool list = list_of(fraction())(word).empty();
  require(!fraction()(word).empty() || list, "one value is a list");
  require(word == text, "validators change nothing");
  outcomes += whole ? 'w' : '-';
  outcomes += list ? 'l' : '-';
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = fuzz::text_of(data, size);
  outcomes.clear();
  for (const int gpus : {0, 1, 8}) check_devices(text, gpus);
  check_split(text, static_cast<int>(std::ranges::count(text, ':')) + 1);
  check_split(text, 2);
  check_bytes(text);
  check_link(text);
  check_numbers(text);
  fuzz::last_outcome = outcomes;
  return 0;
}
