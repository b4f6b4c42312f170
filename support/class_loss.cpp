#include <lockstep/support/class_loss.h>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <lockstep/support/cuda/class_loss_kernels.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls body(T{}): the kernels' type of the logits.
template <class Body>
void with_type_of(const torch::Tensor& logits, const Body& body) {
  logits.scalar_type() == torch::kBFloat16 ? body(Bf16{}) : body(float{});
}

class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  // Returns the loss, and the two counts.
  static variable_list forward(AutogradContext* context, const torch::Tensor& given,
                               const torch::Tensor& labels_given) {
    const c10::DeviceGuard guard(given.device());
    const auto logits = given.contiguous(), labels = labels_given.contiguous();
    const auto rows = logits.size(0), classes = logits.size(1);
    const auto floats = logits.options().dtype(torch::kFloat32);
    const auto loss = torch::empty({}, floats);
    const auto counts = torch::empty({2}, labels.options());
    const auto largest = torch::empty({rows}, floats), inverse = torch::empty({rows}, floats);
    const auto doubles = class_loss_workspace(rows, classes);
    const auto workspace =
        doubles > 0 ? torch::empty({doubles}, floats.dtype(torch::kFloat64)) : torch::Tensor();
    with_type_of(logits, [&]<class T>(T) {
      class_loss_forward(ClassLossForward<T>{.rows = rows,
                                             .classes = classes,
                                             .logits = data_or_null<const T>(logits),
                                             .labels = data_or_null<const int64_t>(labels),
                                             .largest = data_or_null<float>(largest),
                                             .inverse = data_or_null<float>(inverse),
                                             .loss = data_or_null<float>(loss),
                                             .counts = data_or_null<int64_t>(counts),
                                             .workspace = data_or_null<double>(workspace)},
                         native_stream(logits.device()));
    });
    context->save_for_backward({given, labels, largest, inverse});
    context->mark_non_differentiable({counts});
    context->set_materialize_grads(false);  // else each backward would fill zeros for the counts
    return {loss, counts};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {torch::Tensor(), torch::Tensor()};
    const auto saved = context->get_saved_variables();
    const auto& given = saved[0];
    const auto& labels = saved[1];
    if (torch::GradMode::is_enabled()) {  // create_graph: of operations that can be differentiated again
      const auto softmax = given.to(torch::kFloat32).softmax(1);
      const auto wanted = torch::zeros_like(softmax).scatter_(1, labels.unsqueeze(1), 1);
      return {(gradients[0] * (softmax - wanted)).to(given.scalar_type()), torch::Tensor()};
    }
    const c10::DeviceGuard guard(given.device());
    const auto logits = given.contiguous();
    const auto dlogits = torch::empty_like(logits);
    with_type_of(logits, [&]<class T>(T) {
      class_loss_backward(ClassLossBackward<T>{.rows = logits.size(0),
                                               .classes = logits.size(1),
                                               .logits = data_or_null<const T>(logits),
                                               .labels = data_or_null<const int64_t>(labels),
                                               .largest = data_or_null<const float>(saved[2]),
                                               .inverse = data_or_null<const float>(saved[3]),
                                               .dloss = data_or_null<const float>(gradients[0]),
                                               .dlogits = data_or_null<T>(dlogits)},
                          native_stream(logits.device()));
    });
    return {dlogits, torch::Tensor()};
  }
};

}  // namespace

bool class_loss_available(const torch::Tensor& logits, const torch::Tensor& labels) {
  const auto type = logits.scalar_type();
  if (type != torch::kFloat32 && type != torch::kBFloat16) return false;
  if (!logits.is_cuda() && !logits.is_cpu()) return false;
  return class_loss_kernels_take(logits.is_cuda()) && labels.device() == logits.device() &&
         labels.scalar_type() == torch::kInt64 && logits.dim() == 2 && logits.size(1) > 0 &&
         labels.dim() == 1 && labels.size(0) == logits.size(0);
}

ClassLoss class_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  const auto results = CrossEntropy::apply(logits, labels);
  return {results[0], results[1][0], results[1][1]};
}

}  // namespace lockstep
