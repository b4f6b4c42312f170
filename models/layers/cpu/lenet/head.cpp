#include <lockstep/models/layers/cpu/lenet/head.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include <lockstep/models/layers/autograd_operation.h>
#include <lockstep/models/layers/cpu/check_params.h>
#include <lockstep/support/cpu/parallel_parts.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kHeadIn = LeNetSizes::kFeatures, kHeadHidden = LeNetSizes::kHidden,
                  kHeadClasses = LeNetSizes::kClasses;
constexpr int64_t kOfW3 = kHeadIn * kHeadHidden, kOfW4 = kHeadHidden * kHeadClasses,
                  kHeadSums = kOfW3 + kHeadHidden + kOfW4 + kHeadClasses;

// A thread gets at least 16 rows if there are that many: enough to fill the registers of a matrix product.
int64_t threads_for_rows(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, at::get_num_threads()); }

// Runs body(first row, rows, thread) over all rows, at most as many at a time as the kernels take.
template <class Body>
void over_head_rows(int64_t rows, int64_t threads, const Body& body) {
  parallel_ranges(rows, threads, [&](int64_t first, int64_t end, int64_t thread) {
    for (; first < end; first += LeNetSizes::kHeadRows) {
      body(first, static_cast<int>(std::min<int64_t>(LeNetSizes::kHeadRows, end - first)), thread);
    }
  });
}

// params: W3, b3, W4, b4.
template <class T>
LeNetHead<T> head_of(const variable_list& params, const T* of_features) {
  const auto at = [&](size_t i) { return data_or_null<const T>(params[i]); };
  return {at(0), at(1), at(2), at(3), of_features};
}

// The parameters' gradients. The first thread adds to the resulting tensors, each of the others to memory of
// its own.
template <class T>
class HeadSums {
 public:
  HeadSums(const torch::TensorOptions& options, int64_t threads)
      : results_{torch::zeros({kHeadIn, kHeadHidden}, options), torch::zeros({kHeadHidden}, options),
                 torch::zeros({kHeadHidden, kHeadClasses}, options), torch::zeros({kHeadClasses}, options)},
        others_(torch::zeros({threads - 1, kHeadSums}, options)) {}

  std::vector<LeNetHeadGradients<T>> of_threads() const {
    const auto at = [&](size_t i) { return data_or_null<T>(results_[i]); };
    std::vector<LeNetHeadGradients<T>> all{{at(0), at(1), at(2), at(3)}};
    for (int64_t i = 0; i < others_.size(0); ++i) {
      T* sums = data_or_null<T>(others_) + i * kHeadSums;
      all.push_back({sums, sums + kOfW3, sums + kOfW3 + kHeadHidden, sums + kOfW3 + kHeadHidden + kOfW4});
    }
    return all;
  }

  variable_list total() const {
    for (const auto& sums : others_.unbind()) {
      const auto pieces = sums.split_with_sizes({kOfW3, kHeadHidden, kOfW4, kHeadClasses});
      for (size_t i = 0; i < results_.size(); ++i) results_[i].view(-1).add_(pieces[i]);
    }
    return results_;
  }

 private:
  variable_list results_;
  torch::Tensor others_;
};

template <class T>
class LeNetHeadFunction : public torch::autograd::Function<LeNetHeadFunction<T>> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& features_in,
                               const torch::Tensor& W3, const torch::Tensor& b3, const torch::Tensor& W4,
                               const torch::Tensor& b4, const LeNetLayers<T>* layers) {
    const auto features = features_in.contiguous();
    const variable_list params{W3.contiguous(), b3.contiguous(), W4.contiguous(), b4.contiguous()};
    const int64_t rows = features.size(0), threads = threads_for_rows(rows);
    const auto hidden = torch::empty({rows, kHeadHidden}, features.options());
    const auto logits = torch::empty({rows, kHeadClasses}, features.options());
    const auto scratch = torch::empty({threads, layers->head_scratch}, features.options());
    const auto head = head_of<T>(params, nullptr);
    const auto* const features_at = data_or_null<const T>(features);
    T *const hidden_at = data_or_null<T>(hidden), *const logits_at = data_or_null<T>(logits);
    T* const scratch_at = data_or_null<T>(scratch);
    over_head_rows(rows, threads, [&](int64_t first, int count, int64_t thread) {
      layers->head_forward(features_at + first * kHeadIn, count, head,
                           scratch_at + thread * layers->head_scratch, hidden_at + first * kHeadHidden,
                           logits_at + first * kHeadClasses);
    });
    save_kernels(context, *layers);
    context->save_for_backward({params[0], params[1], params[2], params[3], features, hidden});
    return logits;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_double_backward("LeNet's linear layers");
    const auto saved = context->get_saved_variables();
    const auto& layers = saved_kernels<LeNetLayers<T>>(context);
    const auto dlogits = gradients[0].contiguous();
    const auto needs = [&](size_t i) { return context->needs_input_grad(i); };
    torch::Tensor dfeatures;
    if (needs(0)) dfeatures = torch::empty_like(saved[4]);
    if (!needs(1) && !needs(2) && !needs(3) && !needs(4)) {
      run_backward(layers, saved, dlogits, dfeatures, {});
      return {dfeatures, {}, {}, {}, {}, {}};
    }
    const HeadSums<T> sums(dlogits.options(), threads_for_rows(dlogits.size(0)));
    run_backward(layers, saved, dlogits, dfeatures, sums.of_threads());
    const auto total = sums.total();
    const auto wanted = [&](size_t i) { return needs(i) ? total[i - 1] : torch::Tensor(); };
    return {dfeatures, wanted(1), wanted(2), wanted(3), wanted(4), {}};
  }

 private:
  // Computes no dfeatures if it is undefined, and no parameter gradients if `sums`, one per thread, is empty.
  static void run_backward(const LeNetLayers<T>& layers, const variable_list& saved,
                           const torch::Tensor& dlogits, const torch::Tensor& dfeatures,
                           const std::vector<LeNetHeadGradients<T>>& sums) {
    const int64_t rows = dlogits.size(0), threads = threads_for_rows(rows);
    torch::Tensor of_features;  // W3 transposed
    if (dfeatures.defined()) {
      of_features = torch::empty({kHeadHidden, kHeadIn}, dlogits.options());
      layers.transpose_matrix(data_or_null<const T>(saved[0]), kHeadIn, kHeadHidden,
                              data_or_null<T>(of_features));
    }
    const auto head = head_of<T>(saved, data_or_null<const T>(of_features));
    const auto scratch = torch::empty({threads, layers.head_scratch}, dlogits.options());
    const auto* const features_at = data_or_null<const T>(saved[4]);
    const auto* const hidden_at = data_or_null<const T>(saved[5]);
    const auto* const dlogits_at = data_or_null<const T>(dlogits);
    T *const dfeatures_at = data_or_null<T>(dfeatures), *const scratch_at = data_or_null<T>(scratch);
    over_head_rows(rows, threads, [&](int64_t first, int count, int64_t thread) {
      layers.head_backward(features_at + first * kHeadIn, hidden_at + first * kHeadHidden,
                           dlogits_at + first * kHeadClasses, count, head,
                           scratch_at + thread * layers.head_scratch,
                           dfeatures_at ? dfeatures_at + first * kHeadIn : nullptr,
                           sums.empty() ? LeNetHeadGradients<T>{} : sums[static_cast<size_t>(thread)]);
    });
  }
};

}  // namespace

template <class T>
torch::Tensor lenet_head(const torch::Tensor& features, const torch::Tensor& W3, const torch::Tensor& b3,
                         const torch::Tensor& W4, const torch::Tensor& b4, const LeNetLayers<T>& layers) {
  check_params<T>({{features, {features.size(0), kHeadIn}},
                   {W3, {kHeadIn, kHeadHidden}},
                   {b3, {kHeadHidden}},
                   {W4, {kHeadHidden, kHeadClasses}},
                   {b4, {kHeadClasses}}});
  return LeNetHeadFunction<T>::apply(features, W3, b3, W4, b4, &layers);
}

template torch::Tensor lenet_head<float>(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&,
                                         const torch::Tensor&, const torch::Tensor&,
                                         const LeNetLayers<float>&);
template torch::Tensor lenet_head<double>(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&,
                                          const torch::Tensor&, const torch::Tensor&,
                                          const LeNetLayers<double>&);

}  // namespace lockstep
