// LeNet's two linear layers with the ReLU between them, for the capability whose source includes this header.
#pragma once

#include <lockstep/models/layers/cpu/lenet/layers.h>
#include <lockstep/models/layers/cpu/multiply.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// Ten classes in sixteen columns, which fill whole registers of every capability; the last six are 0.
inline constexpr int kClassColumns = 16;

// Copies (rows, from) to (rows, to); columns that the source lacks are 0.
template <class T>
void copy_columns(const T* source, int from, int rows, T* target, int to) {
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < to; ++column) {
      target[row * to + column] = column < from ? source[row * from + column] : T(0);
    }
  }
}

template <class T>
void transpose_matrix(const T* matrix, int rows, int columns, T* transposed) {
  for (int row = 0; row < rows; row += kLanes) {
    for (int column = 0; column < columns; column += kLanes) {
      Lanes<T> values[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) values[i] = load(matrix + int64_t{row + i} * columns + column);
      transpose<T>(values);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store<T>(values[i], transposed + int64_t{column + i} * rows + row);
    }
  }
}

template <class T>
struct Head {
  static constexpr int kIn = LeNetSizes::kFeatures, kHidden = LeNetSizes::kHidden,
                       kClasses = LeNetSizes::kClasses;
  static constexpr int kRows = LeNetSizes::kHeadRows;

  // Offsets of the parts of scratch.
  static constexpr int kW4 = 0, kOutputs = kW4 + kHidden * kClassColumns,
                       kOfHidden = kOutputs + kRows * kClassColumns;
  static constexpr int kScratch = kOfHidden + kRows * kHidden;

  static void forward(const T* features, int rows, const LeNetHead<T>& head, T* scratch, T* hidden,
                      T* logits) {
    multiply<T>({features, kIn, 1}, head.W3, kHidden, rows, kIn, kHidden, /*add=*/false, hidden, kHidden);
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < kHidden; column += kLanes) {
        T* at = hidden + row * kHidden + column;
        const Lanes<T> sum = load(at) + load(head.b3 + column);
        store<T>(sum <= Lanes<T>{} ? Lanes<T>{} : sum, at);
      }
    }
    copy_columns<T>(head.W4, kClasses, kHidden, scratch + kW4, kClassColumns);
    multiply<T>({hidden, kHidden, 1}, scratch + kW4, kClassColumns, rows, kHidden, kClassColumns, false,
                scratch + kOutputs, kClassColumns);
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < kClasses; ++i) {
        logits[row * kClasses + i] = scratch[kOutputs + row * kClassColumns + i] + head.b4[i];
      }
    }
  }

  static void backward(const T* features, const T* hidden, const T* dlogits, int rows,
                       const LeNetHead<T>& head, T* scratch, T* dfeatures,
                       const LeNetHeadGradients<T>& gradients) {
    T *W4T = scratch + kW4, *dhidden = scratch + kOfHidden;
    const bool parameters = gradients.W3 != nullptr;
    if (parameters) add_of_outputs(hidden, dlogits, rows, scratch, gradients);
    for (int i = 0; i < kHidden * kClasses; ++i) W4T[i % kClasses * kHidden + i / kClasses] = head.W4[i];
    multiply<T>({dlogits, kClasses, 1}, W4T, kHidden, rows, kClasses, kHidden, false, dhidden, kHidden);
    for (int column = 0; column < kHidden; column += kLanes) {
      Lanes<T> sum = {};
      for (int at = column; at < rows * kHidden; at += kHidden) {
        const Lanes<T> passed = load(hidden + at) <= Lanes<T>{} ? Lanes<T>{} : load(dhidden + at);
        store<T>(passed, dhidden + at);
        sum += passed;
      }
      if (parameters) store<T>(load(gradients.b3 + column) + sum, gradients.b3 + column);
    }
    if (parameters)
      multiply<T>({features, 1, kIn}, dhidden, kHidden, kIn, rows, kHidden, true, gradients.W3, kHidden);
    if (dfeatures)
      multiply<T>({dhidden, kHidden, 1}, head.of_features, kIn, rows, kHidden, kIn, false, dfeatures, kIn);
  }

 private:
  // Adds to the gradients of W4 and b4.
  static void add_of_outputs(const T* hidden, const T* dlogits, int rows, T* scratch,
                             const LeNetHeadGradients<T>& gradients) {
    T* doutputs = scratch + kOutputs;
    T dW4[kHidden * kClassColumns];
    copy_columns<T>(dlogits, kClasses, rows, doutputs, kClassColumns);
    multiply<T>({hidden, 1, kHidden}, doutputs, kClassColumns, kHidden, rows, kClassColumns, false, dW4,
                kClassColumns);
    for (int i = 0; i < kHidden * kClasses; ++i) {
      gradients.W4[i] += dW4[i / kClasses * kClassColumns + i % kClasses];
    }
    for (int i = 0; i < rows * kClasses; ++i) gradients.b4[i % kClasses] += dlogits[i];
  }
};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
