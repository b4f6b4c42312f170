#include <lockstep/data/images/normalize.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include <lockstep/data/images/image_source.h>
#include <lockstep/data/images/pixel_counts.h>
#include <lockstep/support/error.h>
#include <lockstep/support/random_streams.h>
#include <lockstep/support/row_numbers.h>
#include <lockstep/support/split_mix64.h>

namespace lockstep {
namespace {

constexpr int64_t kMeasuredTogether = 256;  // rows, of which the next ones are read ahead

using Histogram = std::array<int64_t, 256>;  // by byte

std::vector<int64_t> sampled_rows(int64_t rows, const MeasureOptions& options) {
  if (options.sample < 0) {
    throw UsageError(fmt::format("a sample of {} rows cannot be measured", options.sample), "0 is all rows");
  }
  std::vector<int64_t> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  if (options.sample == 0 || options.sample >= rows) return numbers;
  SplitMix64 random(options.seed, {kSampleStream, static_cast<uint64_t>(rows)});
  const auto sample = static_cast<size_t>(options.sample);
  for (size_t i = 0; i < sample; ++i) {
    std::swap(numbers[i], numbers[i + random.below(numbers.size() - i)]);
  }
  numbers.resize(sample);
  std::ranges::sort(numbers);  // files lie in this order
  return numbers;
}

// Sums of squares of more than 2^47 bytes would not fit into 64 bits.
void add_moments(const Histogram& bytes, PixelMoments& into) {
  __extension__ using Wide = __int128;
  Wide count = 0, sum = 0, squares = 0;
  for (int64_t byte = 0; byte < 256; ++byte) {
    const Wide times = bytes[static_cast<size_t>(byte)];
    count += times;
    sum += times * byte;
    squares += times * byte * byte;
  }
  const auto pixels = static_cast<double>(count);
  into.mean.push_back(static_cast<double>(sum) / pixels / 255);
  into.deviation.push_back(std::sqrt(static_cast<double>(count * squares - sum * sum)) / pixels / 255);
}

PixelCounts count_pixels(const BatchSource& source, size_t image, std::span<const int64_t> rows) {
  const auto sizes = image_sizes(source.spec().at(image));
  const auto plane = int64_t{sizes.height} * sizes.width;
  PixelCounts result(sizes.channels);
  const auto part = [&](size_t begin) {
    const auto first = std::min(begin, rows.size());
    return rows.subspan(first, std::min<size_t>(kMeasuredTogether, rows.size() - first));
  };
  Batch batch(std::make_shared<const BatchSpec>(source.spec()));
  torch::Tensor numbers;
  source.will_need(part(0), /*epoch=*/0);
  for (size_t begin = 0; begin < rows.size(); begin += kMeasuredTogether) {
    if (const auto next = part(begin + kMeasuredTogether); !next.empty()) source.will_need(next, /*epoch=*/0);
    upload_rows(part(begin), source.size(), torch::kCPU, numbers);
    source.gather(numbers, /*epoch=*/0, batch);
    const auto images = batch[image].contiguous();
    result.add({images.const_data_ptr<uint8_t>(), static_cast<size_t>(images.numel())}, plane);
  }
  return result;
}

}  // namespace

std::string to_string(const Normalization& normalization) {
  if (normalization.mean.empty()) return "none";
  return fmt::format("mean {}, deviation {}", fmt::join(normalization.mean, ", "),
                     fmt::join(normalization.deviation, ", "));
}

void check(const Normalization& normalization, int64_t channels) {
  const auto& [mean, deviation] = normalization;
  if (mean.size() != deviation.size()) {
    throw UsageError(
        fmt::format("{} means and {} deviations do not normalise images", mean.size(), deviation.size()),
        "give both for each channel, or one for all");
  }
  if (mean.size() > 1 && static_cast<int64_t>(mean.size()) != channels) {
    throw UsageError(fmt::format("means of {} channels do not normalise images of {}", mean.size(), channels),
                     "give one for each channel, or one for all");
  }
  for (size_t i = 0; i < mean.size(); ++i) {
    if (std::isfinite(mean[i]) && std::isfinite(deviation[i]) && deviation[i] > 0) continue;
    throw UsageError(fmt::format("mean {} and deviation {} do not normalise images", mean[i], deviation[i]),
                     "both are finite, and deviations are above 0");
  }
}

TrainingData normalized(TrainingData data, const Normalization& normalization, std::string_view input) {
  const auto found = std::ranges::find(data.spec, input, &TensorSpec::name);
  if (found == data.spec.end()) {
    throw UsageError(fmt::format("{} has no tensor named {}", data.name, input));
  }
  if (found->dtype != torch::kUInt8) {
    if (normalization.mean.empty()) return data;
    throw UsageError(
        fmt::format("images of bytes can be normalised, {} has {}", data.name, to_string(*found)));
  }
  if (!normalization.mean.empty()) check(normalization, image_sizes(*found).channels);
  found->dtype = torch::kFloat32;
  for (auto* rows : {&data.train, &data.test, data.validation ? &*data.validation : nullptr}) {
    if (rows) rows->sources = normalized(std::move(rows->sources), normalization, std::string(input));
  }
  return data;
}

MeasuredPixels measure(const DataRows& rows, const MeasureOptions& options) {
  const auto numbers = sampled_rows(rows.rows, options);
  if (numbers.empty()) throw DataError("images without rows have no mean and no deviation");
  const auto source = rows.sources(torch::kCPU);
  const auto image = image_input(source->spec(), options.input);
  const auto counts = count_pixels(*source, image, numbers);
  return {.normalization = normalization_of(counts),
          .rows = static_cast<int64_t>(numbers.size()),
          .deviation = moments_of(counts).deviation};
}

PixelMoments moments_of(const PixelCounts& counts) {
  PixelMoments moments;
  for (const auto& channel : counts.counts()) add_moments(channel, moments);
  return moments;
}

Normalization normalization_of(const PixelCounts& counts) {
  auto [mean, deviation] = moments_of(counts);
  std::ranges::replace(deviation, 0, 1);
  return {.mean = std::move(mean), .deviation = std::move(deviation)};
}

}  // namespace lockstep
