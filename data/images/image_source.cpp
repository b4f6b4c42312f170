#include <lockstep/data/images/image_source.h>

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <lockstep/data/fitting.h>
#include <lockstep/data/images/augment.h>
#include <lockstep/data/kernels/augment_images.h>
#include <lockstep/data/kernels/gather_images.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kLongestSide = 32767;

bool is_image_shape(const TensorSpec& tensor) {
  const auto is_side = [](int64_t size) { return size >= 1 && size <= kLongestSide; };
  return tensor.row_shape.size() == 3 && std::ranges::all_of(tensor.row_shape, is_side);
}

bool only_divides(const ImageChanges& changes) {
  return changes.normalization && changes.normalization->mean.empty() && !changes.augmentation.any();
}

// Returns the float that each byte of each channel becomes: (channels, 256).
torch::Tensor values_of_bytes(const Normalization& normalization, int64_t channels) {
  check(normalization, channels);
  auto values = torch::empty({channels, 256}, torch::kFloat32);
  auto* const value = values.mutable_data_ptr<float>();
  const auto of = [](const std::vector<double>& numbers, int64_t channel, double without) {
    if (numbers.empty()) return without;
    return numbers.size() == 1 ? numbers.front() : numbers[static_cast<size_t>(channel)];
  };
  for (int64_t channel = 0; channel < channels; ++channel) {
    const double mean = of(normalization.mean, channel, 0),
                 deviation = of(normalization.deviation, channel, 1);
    for (int byte = 0; byte < 256; ++byte) {
      value[256 * channel + byte] = static_cast<float>((byte / 255. - mean) / deviation);
    }
  }
  return values;
}

// Returns true for images and a class number each.
bool are_labelled_images(const BatchSpec& spec, size_t image) {
  if (spec.size() != 2) return false;
  const auto& label = spec[1 - image];
  return is_image_shape(spec[image]) && label.dtype == torch::kInt64 && label.row_shape.empty();
}

template <class Out>
void write_images(const AugmentedRows& batch, Out* X, torch::Device device) {
  if (device.is_cpu()) {
    augment_rows(batch, X, at::get_num_threads());
    return;
  }
  const c10::DeviceGuard guard(device);
  augment_images(batch, X, native_stream(device));
}

}  // namespace

size_t image_input(const BatchSpec& spec, const std::string& input) {
  std::vector<size_t> found;
  std::vector<std::string> given;
  for (size_t i = 0; i < spec.size(); ++i) {
    given.push_back(to_string(spec[i]));
    if (spec[i].role != Role::kInput || spec[i].dtype != torch::kUInt8) continue;
    if (input.empty() ? spec[i].row_shape.size() == 3 : spec[i].name == input) found.push_back(i);
  }
  if (found.size() == 1) return found.front();
  const auto wanted = input.empty() ? "one input" : "an input " + input;
  throw DataError(
      fmt::format("images to augment or normalise are {} of bytes [n, channels, height, width], the "
                  "source gives {}",
                  wanted, fmt::join(given, ", ")),
      found.empty() ? "" : "name the input that has the images");
}

ImageSizes image_sizes(const TensorSpec& tensor) {
  if (!is_image_shape(tensor)) {
    throw DataError(fmt::format("{} has no images [n, channels, height, width] of 1 to {} pixels a side",
                                to_string(tensor), kLongestSide),
                    "all images of a data set have one size");
  }
  const auto size = [&](size_t i) { return static_cast<int>(tensor.row_shape[i]); };
  return {size(0), size(1), size(2)};
}

ImageSource::ImageSource(std::shared_ptr<const BatchSource> bytes, size_t image, ImageChanges changes,
                         torch::Device device)
    : bytes_(std::move(bytes)),
      resident_(dynamic_cast<const ResidentRows*>(bytes_.get())),
      image_(image),
      changes_(std::move(changes)),
      device_(device),
      spec_of_bytes_(std::make_shared<const BatchSpec>(bytes_->spec())),
      resident_images_(resident_ ? resident_->all()[image].contiguous() : torch::Tensor()),
      by_torch_(only_divides(changes_) && (device.is_cpu() || !is_image_shape(spec_of_bytes_->at(image)))),
      by_one_kernel_(resident_ && device.is_cuda() && only_divides(changes_) &&
                     are_labelled_images(*spec_of_bytes_, image)),
      shape_(by_torch_ ? ImageSizes{0, 0, 0} : image_sizes(spec_of_bytes_->at(image))),
      values_(changes_.normalization && !by_torch_
                  ? values_of_bytes(*changes_.normalization, shape_.channels).to(device)
                  : torch::Tensor()),
      divisor_(by_torch_ ? torch::full({}, 255, torch::kFloat32).to(device) : torch::Tensor()) {}

BatchSpec ImageSource::spec() const {
  auto spec = *spec_of_bytes_;
  if (changes_.normalization) spec[image_].dtype = torch::kFloat32;
  return spec;
}

// A graph would keep the epoch, and with it the draws.
bool ImageSource::can_be_captured() const {
  return !changes_.augmentation.any() && bytes_->can_be_captured();
}

std::string ImageSource::settings() const {
  std::vector<std::string> parts;
  if (auto inner = bytes_->settings(); !inner.empty()) parts.push_back(std::move(inner));
  const auto& name = spec_of_bytes_->at(image_).name;
  if (changes_.augmentation.any()) {
    parts.push_back(fmt::format("{} augmented by {} with seed {}", name, to_string(changes_.augmentation),
                                changes_.seed));
  }
  if (changes_.normalization && !changes_.normalization->mean.empty()) {
    parts.push_back(fmt::format("{} normalised by {}", name, to_string(*changes_.normalization)));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

void ImageSource::gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const {
  if (by_one_kernel_) return gather_by_one_kernel(rows, into);
  const auto images = originals(rows, epoch, into);
  const bool in_place = resident_ != nullptr;
  auto& X = into[image_];
  const auto dtype = changes_.normalization ? torch::kFloat32 : torch::kUInt8;
  auto sizes = images.sizes().vec();
  sizes[0] = rows.numel();
  X = fitting(X, sizes, images.options().dtype(dtype));
  if (by_torch_) {
    X.copy_(in_place ? images.index_select(0, rows) : images).div_(divisor_);
    return;
  }
  change(images, in_place, rows, epoch, X);
}

void ImageSource::gather_by_one_kernel(const torch::Tensor& rows, Batch& into) const {
  const auto n = rows.numel();
  const auto& all_labels = resident_->all()[1 - image_];
  auto &X = into[image_], &labels = into[1 - image_];
  X = fitting(X, {n, shape_.channels, shape_.height, shape_.width},
              resident_images_.options().dtype(torch::kFloat32));
  labels = fitting(labels, {n}, all_labels.options());
  const c10::DeviceGuard guard(device_);
  gather_images(resident_images_.const_data_ptr<uint8_t>(), all_labels.const_data_ptr<int64_t>(),
                rows.const_data_ptr<int64_t>(), n, resident_images_[0].numel(), X.mutable_data_ptr<float>(),
                labels.mutable_data_ptr<int64_t>(), native_stream(device_));
}

// Returns the images in bytes: all of them, if they are resident, else those of the rows. Writes the other
// tensors of the rows.
torch::Tensor ImageSource::originals(const torch::Tensor& rows, int64_t epoch, Batch& into) const {
  if (resident_) {
    for (size_t i = 0; i < spec_of_bytes_->size(); ++i) {
      if (i != image_) resident_->gather_tensor(i, rows, into);
    }
    return resident_images_;
  }
  Batch batch(spec_of_bytes_);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (i != image_) batch[i] = into[i];
  }
  bytes_->gather(rows, epoch, batch);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (i != image_) into[i] = batch[i];
  }
  return batch[image_];
}

void ImageSource::change(const torch::Tensor& images, bool by_row, const torch::Tensor& rows, int64_t epoch,
                         const torch::Tensor& into) const {
  const auto bytes = images.contiguous();
  const auto numbers = rows.contiguous();
  AugmentedRows batch = {.images = bytes.const_data_ptr<uint8_t>(),
                         .rows = numbers.const_data_ptr<int64_t>(),
                         .n = numbers.numel(),
                         .by_row = by_row ? 1 : 0,
                         .shape = shape_,
                         .draws = draws_of(changes_.augmentation, changes_.seed, epoch),
                         .values = nullptr};
  if (!changes_.normalization) {
    write_images(batch, into.mutable_data_ptr<uint8_t>(), device_);
    return;
  }
  batch.values = values_.const_data_ptr<float>();
  write_images(batch, into.mutable_data_ptr<float>(), device_);
}

SourceFactory augmented(SourceFactory bytes, Augmentation augmentation, uint64_t seed, std::string input) {
  check(augmentation);
  if (!augmentation.any()) return bytes;
  return [=, bytes = std::move(bytes), input = std::move(input)](torch::Device device) {
    auto source = bytes(device);
    const auto image = image_input(source->spec(), input);
    return std::make_shared<ImageSource>(std::move(source), image,
                                         ImageChanges{.augmentation = augmentation, .seed = seed}, device);
  };
}

SourceFactory normalized(SourceFactory bytes, Normalization normalization, std::string input) {
  check(normalization, static_cast<int64_t>(normalization.mean.size()));  // the factory knows the channels
  return [=, bytes = std::move(bytes), input = std::move(input)](torch::Device device) {
    auto source = bytes(device);
    const auto image = image_input(source->spec(), input);
    ImageChanges changes;
    const auto* const inner = dynamic_cast<const ImageSource*>(source.get());
    if (inner && inner->image() == image) {  // one pass for both
      changes = inner->changes();
      source = std::shared_ptr(inner->bytes());
    }
    changes.normalization = normalization;
    return std::make_shared<ImageSource>(std::move(source), image, std::move(changes), device);
  };
}

}  // namespace lockstep
