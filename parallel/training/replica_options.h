// Options of a training run's replicas.
#pragma once

#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/optimizer/optimizer_options.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/choices.h>
#include <lockstep/support/notice.h>

namespace lockstep {

// The choice to capture and replay a GPU's steps. A replayed step runs no autograd hooks: all buckets of
// gradients are posted after its backward.
enum class CudaGraph {
  kAuto,  // where it can be done
  kOn,    // an error where it cannot
  kOff,
};

inline constexpr Choice<CudaGraph> kCudaGraphNames[] = {
    {"auto", CudaGraph::kAuto}, {"on", CudaGraph::kOn}, {"off", CudaGraph::kOff}};

// How each replica of a Trainer computes its steps.
struct ReplicaOptions {
  GradientSyncOptions sync;  // its bucket hook runs after a captured step's backward, and is not captured
  OptimizerOptions optimizer;
  double clip_norm = 0;  // upper bound of the global gradient's norm; 0: none
  double ema = 0;        // set by Trainer, from TrainerOptions::ema
  Precision precision = Precision::kFp32;
  LossScaleOptions loss_scale;   // with Precision::kFp16
  bool invariant = false;        // the same bits on 1, 2, 4 and 8 replicas
  bool wait_for_device = false;  // after each phase, so that a GPU's times are its own
  CudaGraph cuda_graph =
      CudaGraph::kAuto;    // not with `invariant`, `wait_for_device`, `trace`, fp16 or a factory
  int in_flight = 1;       // set by Trainer, from TrainerOptions::in_flight
  Notice notice;           // told when a step cannot be captured; may be empty
  Trace* trace = nullptr;  // of all threads and GPUs; outlives the replica
};

}  // namespace lockstep
