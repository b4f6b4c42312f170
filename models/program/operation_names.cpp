#include <lockstep/models/program/operation_names.h>

#include <array>
#include <unordered_set>

namespace lockstep::program {
namespace {

// The operations that training graphs of torch.export hold: on dense tensors. Names with
// an underscore at their beginning are those that torch's public Python functions call. The list leaves out,
// on purpose:
//   from_file                        reads any file
//   set_, set_data, resize_*         change the memory of a tensor
//   sparse_*, quantized_*, nested_*  build tensors whose parts are not checked
//   combinations                     takes hours for large numbers
//   *_backward                       autograd computes gradients
//   *native_batch_norm*              would compute beside --bn, which is about batch_norm
constexpr std::array kNames{
    // Numbers.
    "add add_ sub sub_ subtract rsub mul mul_ multiply div div_ divide true_divide floor_divide "
    "floor_divide_ remainder",
    "remainder_ fmod fmod_ neg neg_ negative positive abs abs_ absolute sign sign_ signbit sgn copysign "
    "reciprocal",
    "reciprocal_ sqrt sqrt_ rsqrt rsqrt_ square square_ pow pow_ float_power exp exp_ exp2 exp2_ expm1 "
    "expm1_ log log_",
    "log2 log2_ log10 log10_ log1p log1p_ sin sin_ cos cos_ tan tan_ asin acos atan atan_ atan2 arctan2 sinh "
    "cosh tanh",
    "tanh_ asinh acosh atanh sinc deg2rad rad2deg hypot floor floor_ ceil ceil_ round round_ trunc trunc_ "
    "fix frac frac_",
    "clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ clip clip_ maximum minimum fmax fmin nan_to_num "
    "nan_to_num_",
    "erf erf_ erfc erfc_ erfinv erfinv_ lgamma digamma polygamma mvlgamma i0 special_i0e special_i1 "
    "special_i1e",
    "special_expit special_logit special_log_softmax special_softmax special_erf special_erfc special_erfinv "
    "special_expm1",
    "special_exp2 special_log1p special_gammaln special_digamma special_entr special_xlogy special_xlog1py "
    "special_ndtr",
    "special_ndtri special_log_ndtr special_sinc special_round special_logsumexp xlogy xlogy_ logaddexp "
    "logaddexp2 logit",
    "logit_ sigmoid_ sigmoid lerp lerp_ addcmul addcmul_ addcdiv addcdiv_ ldexp frexp gcd lcm nextafter dist",
    // Truth values, comparisons and bits.
    "eq eq_ ne ne_ not_equal lt lt_ less le le_ less_equal gt gt_ greater ge ge_ greater_equal isnan isinf "
    "isfinite",
    "isposinf isneginf isclose allclose equal isin logical_and logical_and_ logical_or logical_or_ "
    "logical_not",
    "logical_not_ logical_xor bitwise_and bitwise_and_ bitwise_or bitwise_or_ bitwise_xor bitwise_xor_ "
    "bitwise_not",
    "bitwise_not_ bitwise_left_shift bitwise_right_shift __and__ __iand__ __or__ __ior__ __xor__ __ixor__ "
    "__lshift__",
    "__rshift__ any all where",
    // Reductions and scans.
    "sum nansum mean nanmean prod amax amin aminmax max min argmax argmin median nanmedian mode quantile "
    "nanquantile std",
    "std_mean var var_mean norm frobenius_norm linalg_vector_norm linalg_matrix_norm linalg_norm logsumexp "
    "cumsum cumsum_",
    "cumprod cumprod_ cummax cummin logcumsumexp count_nonzero diff trapezoid cumulative_trapezoid renorm "
    "gradient",
    "histc bincount bucketize searchsorted sort argsort msort topk kthvalue corrcoef cov",
    // Matrices.
    "mm bmm mv dot vdot inner outer ger matmul linalg_matmul addmm addmm_ addmv addbmm baddbmm baddbmm_ addr "
    "einsum",
    "tensordot kron chain_matmul linalg_multi_dot matrix_power linalg_matrix_power matrix_exp "
    "linalg_matrix_exp cross",
    "linalg_cross trace tril tril_ triu triu_ linalg_inv linalg_inv_ex inverse linalg_pinv pinverse "
    "linalg_det det",
    "linalg_slogdet slogdet logdet linalg_solve linalg_solve_ex linalg_solve_triangular triangular_solve "
    "linalg_lstsq",
    "linalg_cholesky linalg_cholesky_ex cholesky_solve cholesky_inverse linalg_qr linalg_svd linalg_svdvals",
    "svd linalg_eigh linalg_eigvalsh linalg_eig linalg_eigvals linalg_lu linalg_lu_factor "
    "linalg_householder_product",
    "linalg_vander linalg_vecdot linalg_diagonal linalg_matrix_rank linalg_cond cdist pdist "
    "cosine_similarity",
    "pairwise_distance",
    // Shapes, and parts of tensors.
    "view view_as reshape reshape_as _unsafe_view flatten unflatten ravel squeeze squeeze_ unsqueeze "
    "unsqueeze_ permute",
    "transpose transpose_ t t_ swapaxes swapdims movedim moveaxis numpy_T matrix_H mT mH adjoint expand "
    "expand_as",
    "broadcast_to broadcast_tensors narrow narrow_copy select select_scatter slice slice_scatter split",
    "split_with_sizes tensor_split chunk unsafe_chunk unsafe_split unsafe_split_with_sizes unbind hsplit "
    "vsplit dsplit cat",
    "concat concatenate stack hstack vstack dstack column_stack row_stack block_diag atleast_1d atleast_2d "
    "atleast_3d",
    "repeat repeat_interleave tile roll rot90 flip fliplr flipud diag diagonal diagonal_scatter diag_embed "
    "diagflat",
    "unfold im2col col2im as_strided as_strided_scatter meshgrid cartesian_prod size stride numel sym_size "
    "sym_stride",
    "sym_numel sym_storage_offset dim is_same_size",
    // Elements by index or mask.
    "index index_put index_put_ index_select index_add index_add_ index_copy index_copy_ index_fill "
    "index_fill_",
    "index_reduce index_reduce_ gather scatter scatter_ scatter_add scatter_add_ scatter_reduce "
    "scatter_reduce_",
    "masked_fill masked_fill_ masked_select masked_scatter masked_scatter_ take take_along_dim put put_ "
    "nonzero",
    "nonzero_static nonzero_numpy argwhere unique_dim unique_consecutive _unique2 one_hot embedding "
    "embedding_bag",
    "embedding_renorm_ item _local_scalar_dense",
    // New tensors, dtypes and memory.
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like zero zero_ "
    "new_zeros ones",
    "ones_like new_ones full full_like new_full fill fill_ fill_diagonal_ arange linspace logspace range eye "
    "scalar_tensor",
    "tril_indices triu_indices vander hann_window hamming_window blackman_window bartlett_window "
    "kaiser_window to type_as",
    "_to_copy contiguous clone copy copy_ detach detach_ alias lift_fresh lift_fresh_copy lift "
    "requires_grad_ complex",
    "polar real imag conj conj_physical resolve_conj resolve_neg _conj _conj_physical _neg_view angle "
    "view_as_real",
    "view_as_complex is_nonzero is_floating_point is_complex result_type",
    // Random numbers.
    "rand rand_like randn randn_like randint randint_like randperm normal normal_ normal_functional uniform "
    "uniform_",
    "bernoulli bernoulli_ exponential exponential_ cauchy_ geometric_ log_normal_ random_ multinomial "
    "poisson dropout",
    "dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ feature_alpha_dropout "
    "feature_alpha_dropout_",
    "native_dropout rrelu rrelu_ rrelu_with_noise binomial",
    // Layers.
    "linear bilinear _trilinear conv1d conv2d conv3d conv_tbc convolution _convolution _convolution_mode "
    "conv_transpose1d",
    "conv_transpose2d conv_transpose3d batch_norm instance_norm",
    "layer_norm native_layer_norm group_norm native_group_norm rms_norm _fused_rms_norm _weight_norm",
    "_weight_norm_interface scaled_dot_product_attention lstm lstm_cell gru gru_cell rnn_tanh rnn_relu",
    "rnn_tanh_cell rnn_relu_cell _pack_padded_sequence _pad_packed_sequence",
    // Activations.
    "relu relu_ relu6 relu6_ leaky_relu leaky_relu_ prelu _prelu_kernel elu elu_ selu selu_ celu celu_ gelu "
    "gelu_ silu",
    "silu_ mish mish_ hardswish hardswish_ hardsigmoid hardsigmoid_ hardtanh hardtanh_ hardshrink softshrink "
    "softplus",
    "log_sigmoid log_sigmoid_forward softmax _softmax log_softmax _log_softmax glu threshold threshold_ "
    "heaviside",
    // Pooling, padding and resampling.
    "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool1d_with_indices "
    "max_pool2d_with_indices",
    "max_pool3d_with_indices adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d",
    "fractional_max_pool3d max_unpool2d max_unpool3d pad constant_pad_nd reflection_pad1d reflection_pad2d",
    "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d _pad_circular _pad_enum",
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d",
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler grid_sampler_2d grid_sampler_3d "
    "affine_grid_generator",
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle",
    // Losses.
    "mse_loss l1_loss smooth_l1_loss huber_loss nll_loss nll_loss_nd nll_loss2d cross_entropy_loss "
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits kl_div soft_margin_loss margin_ranking_loss hinge_embedding_loss",
    "cosine_embedding_loss triplet_margin_loss multi_margin_loss multilabel_margin_loss poisson_nll_loss "
    "ctc_loss",
    // Fourier transforms.
    "fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2 fft_irfft2 "
    "fft_rfftn fft_irfftn",
    "fft_hfft fft_ihfft fft_fftshift fft_ifftshift fft_fftfreq fft_rfftfreq stft istft",
    // Assertions about values, which also run here.
    "_assert_scalar _assert_async _functional_assert_scalar _functional_assert_async sym_constrain_range",
    "sym_constrain_range_for_size",
};

std::unordered_set<std::string_view> all_names() {
  std::unordered_set<std::string_view> names;
  for (std::string_view line : kNames) {
    for (size_t end = 0; !line.empty(); line.remove_prefix(end == line.npos ? line.size() : end + 1)) {
      end = line.find(' ');
      names.insert(line.substr(0, end));
    }
  }
  return names;
}

}  // namespace

bool is_known_operation(std::string_view base) {
  static const auto names = all_names();
  return names.contains(base);
}

}  // namespace lockstep::program
