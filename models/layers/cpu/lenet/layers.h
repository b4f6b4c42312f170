// LeNet's layers on a CPU: two of convolution, ReLU and pooling (conv_pool.h), for groups of as many images
// as a register has lanes, and two linear ones (multiply.h). Raw pointers and no includes of torch: see
// lanes.h.
#pragma once

#include <stdint.h>

namespace lockstep {

struct LeNetSizes {
  static constexpr int kImage = 28 * 28;
  static constexpr int kPooled1 = 20 * 12 * 12;
  static constexpr int kFeatures = 50 * 4 * 4;
  static constexpr int kHidden = 128;
  static constexpr int kClasses = 10;
  static constexpr int kHeadRows = 128;  // rows that the linear layers take at once
};

// (20,1,3,3), (20), (50,20,5,5), (50), and the result of transform() of W2.
template <class T>
struct LeNetFilters {
  const T *W1, *b1, *W2, *b2, *transformed;
};
template <class T>
struct LeNetFilterGradients {
  T *W1, *b1, *W2, *b2;
};

// The values that forward keeps of a group for backward; several groups lie one after another. Each element
// has all lanes. The second layer sees 12 x 12 of the first one's 13 x 13: its pooling drops the outputs that
// would need the last row and column.
template <class T>
struct LeNetKept {
  T* images;        // (784, lanes)
  T* pooled1;       // (20, 12, 12, lanes)
  uint8_t* signs1;  // (20, 12, 12, lanes), see pool_cell()
  uint8_t* signs2;  // (50, 4, 4, lanes)
};

// (800,128), (128), (128,10), (10). of_features: W3 transposed, for backward.
template <class T>
struct LeNetHead {
  const T *W3, *b3, *W4, *b4, *of_features;
};
template <class T>
struct LeNetHeadGradients {
  T *W3, *b3, *W4, *b4;
};

// Which filters need a gradient; those of the biases cost nothing and are always computed.
struct LeNetWanted {
  bool layer1, layer2;
};

// The kernels of one capability. The caller owns all memory, aligned to 64 bytes where it has lanes.
template <class T>
struct LeNetLayers {
  int lanes;            // images in a group
  int most_groups;      // groups that backward takes at once
  int64_t scratch;      // elements of memory for forward and backward
  int64_t transformed;  // elements
  int64_t sums;         // elements
  int64_t head_scratch;

  // Transforms W2 for forward and backward; once per step.
  void (*transform)(const T* W2, T* transformed);

  // images (rows, 784), 1 <= rows <= lanes -> features (rows, 800).
  void (*forward)(const T* images, int rows, const LeNetFilters<T>& filters, const LeNetKept<T>& kept,
                  T* scratch, T* features);

  // dfeatures (rows, 800) of whole groups, the last one perhaps not full. Adds to `sums` for the layers that
  // are wanted.
  void (*backward)(const T* dfeatures, int64_t rows, const LeNetFilters<T>& filters, const LeNetKept<T>& kept,
                   LeNetWanted wanted, T* scratch, T* sums);

  // The filters' gradients from the sums over all rows.
  void (*gradients)(const T* sums, const LeNetFilterGradients<T>& gradients);

  // features (rows, 800), rows <= kHeadRows -> hidden (rows, 128), after its ReLU, and logits (rows, 10).
  void (*head_forward)(const T* features, int rows, const LeNetHead<T>& head, T* scratch, T* hidden,
                       T* logits);

  // dlogits (rows, 10) -> dfeatures (rows, 800), unless that is null. Adds to the gradients, unless all four
  // are null.
  void (*head_backward)(const T* features, const T* hidden, const T* dlogits, int rows,
                        const LeNetHead<T>& head, T* scratch, T* dfeatures,
                        const LeNetHeadGradients<T>& gradients);

  // Transposes (rows, columns), both multiples of 16.
  void (*transpose_matrix)(const T* matrix, int rows, int columns, T* transposed);
};

}  // namespace lockstep
