// As much of torch's header as parallel/training/graphs/step_graph_cuda.cpp uses, for graphs of the fake
// GPUs' streams.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>

namespace lockstep::testing {
struct FakeCapture;
}

enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1 };

namespace at::cuda {

c10::MempoolId_t graph_pool_handle();

class CUDAGraph {
 public:
  CUDAGraph() = default;
  ~CUDAGraph();
  CUDAGraph(const CUDAGraph&) = delete;
  CUDAGraph& operator=(const CUDAGraph&) = delete;

  void capture_begin(c10::MempoolId_t pool, cudaStreamCaptureMode mode);
  void capture_end();
  void replay();
  void reset();
  c10::MempoolId_t pool();

 private:
  std::optional<c10::Stream> stream_;
  c10::MempoolId_t pool_{0, 0};
  bool registered_ = false;      // with the generator
  bool at_generator_ = false;    // and nobody else may be
  bool capturing_ = false;       // and allocating to the pool
  bool allocated_pool_ = false;  // must be released
  std::shared_ptr<lockstep::testing::FakeCapture> graph_;
};

}  // namespace at::cuda
