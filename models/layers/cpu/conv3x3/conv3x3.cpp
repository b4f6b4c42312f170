#include <lockstep/models/layers/cpu/conv3x3/conv3x3.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include <lockstep/models/layers/autograd_operation.h>
#include <lockstep/models/layers/cpu/check_params.h>
#include <lockstep/support/cpu/parallel_parts.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChannels = Conv3x3Shape::kChannels;

// Returns (n, c, h, w) as contiguous (n, h, w, c); copies if needed.
torch::Tensor channels_last(const torch::Tensor& tensor) { return tensor.permute({0, 2, 3, 1}).contiguous(); }

// Returns (n, c, h, w) that lies in memory as (n, h, w, c). It is not a view, so that torch's operations can
// change a result in place.
torch::Tensor empty_channels_last(torch::IntArrayRef sizes, const torch::TensorOptions& options) {
  return torch::empty(sizes, options, torch::MemoryFormat::ChannelsLast);
}

// `count` pieces of memory of bytes_each bytes, one after another.
struct Memory {
  Memory(int64_t count, int64_t bytes_each)
      : tensor(torch::empty({count * bytes_each}, torch::kUInt8)), each(bytes_each) {}

  uint8_t* at(int64_t i) const { return start + i * each; }

  torch::Tensor tensor;
  int64_t each;
  uint8_t* start = tensor.data_ptr<uint8_t>();
};

Range part_of(int64_t count, int64_t part, int64_t parts) {
  return {part_begin(count, part, parts), part_begin(count, part + 1, parts)};
}
Range times(Range range, int64_t factor) { return {range.first * factor, range.last * factor}; }

// How threads share sums over tiles for all filters: in `filters` x `tiles` parts, as many as possible, and
// divided by filters rather than by tiles. Each part of the tiles needs its own sums of all filters (38 MB at
// 512 channels). A part of the filters needs none, but all its threads transform the same inputs.
struct Shares {
  Shares(int64_t threads, int64_t all_tiles, int64_t panels) {
    for (int64_t part = 1; part <= std::min(threads, panels); ++part) {
      if (part * (threads / part) >= filters * tiles) filters = part, tiles = threads / part;
    }
    tiles = std::min(tiles, all_tiles);
  }
  int64_t filters = 1, tiles = 1;
};

// One convolution. Inputs are (n, h, w, c); results are (n, c, h, w) that lie in memory as (n, h, w, c).
template <class T>
struct Conv3x3Work {
  using Number = Computed<T>;

  Conv3x3Shape shape;
  const Conv3x3Kernels<T>& kernels;
  int64_t threads = at::get_num_threads();

  Memory prepared(const torch::Tensor& filters, bool for_input_gradient) const {
    const Memory result(1, kernels.prepared_bytes(shape));
    const auto* from = data_or_null<const Number>(filters);
    parallel_ranges(shape.out / 16, threads, [&](int64_t first, int64_t last, int64_t) {
      kernels.prepare(from, shape, for_input_gradient, {16 * first, 16 * last}, result.start);
    });
    return result;
  }

  int64_t tiles_of(const torch::Tensor& images) const { return images.size(0) * kernels.tiles(shape); }

  // Runs body(tiles, scratch) in threads that share the tiles.
  template <class Body>
  void over_tiles(const torch::Tensor& images, const Body& body) const {
    const int64_t tiles = tiles_of(images), parts = std::min(tiles, threads);
    const Memory scratch(parts, kernels.scratch_bytes(shape));
    parallel_ranges(tiles, parts, [&](int64_t first, int64_t last, int64_t part) {
      body({first, last}, scratch.at(part));
    });
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& filters,
                        const torch::Tensor& bias) const {
    const auto ready = prepared(filters, /*for_input_gradient=*/false);
    const auto y = empty_channels_last({x.size(0), shape.out, shape.height, shape.width}, filters.options());
    const auto* from = data_or_null<const T>(x);
    const auto* added = data_or_null<const Number>(bias);
    auto* to = data_or_null<Number>(y);
    over_tiles(x, [&](Range tiles, void* scratch) {
      kernels.convolve(from, ready.start, added, tiles, shape, scratch, to);
    });
    return y;
  }

  torch::Tensor input_gradient(const torch::Tensor& dy, const torch::Tensor& filters) const {
    const auto ready = prepared(filters, /*for_input_gradient=*/true);
    const auto dx = empty_channels_last({dy.size(0), shape.in, shape.height, shape.width},
                                        dy.options().dtype(kScalarType<T>));
    const auto* from = data_or_null<const Number>(dy);
    T* to = data_or_null<T>(dx);
    over_tiles(dy, [&](Range tiles, void* scratch) {
      kernels.input_gradient(from, ready.start, tiles, shape, scratch, to);
    });
    return dx;
  }

  torch::Tensor filter_gradient(const torch::Tensor& x, const torch::Tensor& dy) const {
    const int64_t tiles = tiles_of(x), panels = shape.out / kChannels;
    const Shares shares(threads, tiles, panels);
    const Memory sums(shares.tiles, kernels.sums_bytes(shape));
    const Memory scratch(shares.tiles * shares.filters, kernels.scratch_bytes(shape));
    const auto result = empty_channels_last({shape.out, shape.in, 3, 3}, dy.options());
    const T* inputs = data_or_null<const T>(x);
    const auto* gradients = data_or_null<const Number>(dy);
    auto* to = data_or_null<Number>(result);
    parallel_parts(shares.tiles * shares.filters, [&](int64_t part) {
      const int64_t of_tiles = part % shares.tiles, of_filters = part / shares.tiles;
      const auto outputs = times(part_of(panels, of_filters, shares.filters), kChannels);
      kernels.filter_sums(inputs, gradients, part_of(tiles, of_tiles, shares.tiles), outputs, shape,
                          scratch.at(part), sums.at(of_tiles));
    });
    parallel_ranges(shape.out, threads, [&](int64_t first, int64_t last, int64_t) {
      kernels.filter_gradient(sums.start, shares.tiles, {first, last}, shape, to);
    });
    return result;
  }
};

template <class T>
Conv3x3Work<T> work_of(const torch::Tensor& x, const torch::Tensor& filters,
                       const Conv3x3Kernels<T>& kernels) {
  return {.shape = {x.size(1), x.size(2), x.size(3), filters.size(0)}, .kernels = kernels};
}

template <class T>
class Conv3x3Function : public torch::autograd::Function<Conv3x3Function<T>> {
 public:
  // bias comes last: needs_input_grad() counts only the tensors that are defined.
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x_in,
                               const torch::Tensor& weight, const std::optional<torch::Tensor>& bias,
                               const Conv3x3Kernels<T>* kernels) {
    const auto x = channels_last(x_in), filters = channels_last(weight);
    save_kernels(context, *kernels);
    context->saved_data["bias"] = bias.has_value();
    context->save_for_backward({x, filters});
    const auto added = bias ? bias->contiguous() : torch::Tensor();
    return work_of(x, filters, *kernels).forward(x, filters, added);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_double_backward("convolutions of 3 x 3");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &filters = saved[1];
    const auto work = work_of(x, filters, saved_kernels<Conv3x3Kernels<T>>(context));
    const auto dy = channels_last(gradients[0]);
    torch::Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) dx = work.input_gradient(dy, filters);
    if (context->needs_input_grad(1)) dweight = work.filter_gradient(x, dy);
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) dbias = dy.sum({0, 1, 2});
    return {dx, dweight, dbias, torch::Tensor()};
  }
};

}  // namespace

bool conv3x3_takes(const torch::Tensor& x, torch::ScalarType type, const torch::Tensor& weight) {
  return x.is_cpu() && weight.scalar_type() == torch::kFloat32 &&
         (type == torch::kFloat32 || (type == torch::kBFloat16 && fast_bf16_kernels())) && x.dim() == 4 &&
         x.numel() > 0 && weight.dim() == 4 && weight.numel() > 0 && weight.size(2) == 3 &&
         weight.size(3) == 3 && weight.size(0) % kChannels == 0 && weight.size(1) % kChannels == 0;
}

int64_t conv3x3_bytes(const Conv3x3Shape& shape, int64_t threads) {
  const auto& kernels = *cpu_kernels<float>().conv3x3;
  const Shares shares(threads, /*all_tiles=*/threads, shape.out / kChannels);
  // Memory of the forward and of the backward pass: malloc keeps it from one to the other.
  return kernels.prepared_bytes(shape) + shares.tiles * kernels.sums_bytes(shape) +
         threads * kernels.scratch_bytes(shape);
}

torch::Tensor conv3x3(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  if (x.scalar_type() == torch::kFloat32) return conv3x3_by(*cpu_kernels<float>().conv3x3, x, weight, bias);
  TORCH_CHECK(x.scalar_type() == torch::kBFloat16 && fast_bf16_kernels(),
              "lockstep's convolution takes floats, and bfloat16 on CPUs with AVX512_BF16, got ",
              x.scalar_type());
  return conv3x3_by(*fast_bf16_kernels()->conv3x3, x, weight, bias);
}

template <class T>
torch::Tensor conv3x3_by(const Conv3x3Kernels<T>& kernels, const torch::Tensor& x,
                         const torch::Tensor& weight, const torch::Tensor& bias) {
  const int64_t in = x.size(1), out = weight.size(0);
  TORCH_CHECK(x.numel() > 0 && weight.numel() > 0 && in % kChannels == 0 && out % kChannels == 0,
              "lockstep's convolution takes at least one image and multiples of 64 channels, got ", x.sizes(),
              " and ", weight.sizes());
  check_params(kScalarType<T>, {{x, x.sizes().vec()}});
  check_params(kScalarType<Computed<T>>, {{weight, {out, in, 3, 3}}});
  if (bias.defined()) check_params(kScalarType<Computed<T>>, {{bias, {out}}});
  return Conv3x3Function<T>::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, &kernels);
}

template torch::Tensor conv3x3_by(const Conv3x3Kernels<float>&, const torch::Tensor&, const torch::Tensor&,
                                  const torch::Tensor&);
template torch::Tensor conv3x3_by(const Conv3x3Kernels<double>&, const torch::Tensor&, const torch::Tensor&,
                                  const torch::Tensor&);
template torch::Tensor conv3x3_by(const Conv3x3Kernels<Bf16>&, const torch::Tensor&, const torch::Tensor&,
                                  const torch::Tensor&);

}  // namespace lockstep
