// Random numbers of its own for a thread. Torch's CPU operations draw from one generator of the process, so
// what a thread gets would depend on the order in which threads come.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep {

// While one lives, torch's operations on CPU tensors in this thread draw from its generator, those of
// backward passes in a replica's thread, too. Unmodified modules and data sets obey it. An operation that is
// given a generator uses that one. Torch's default generator is not touched. Other threads are not concerned.
// Operations on a GPU, also with a seed on the host, draw from that GPU's default generator. May be nested;
// the innermost counts. torch::manual_seed() does not change it, and a backward pass within backward passes,
// 60 deep and more, draws from torch's default generator: autograd moves it to another thread. Destroy it in
// the thread that constructed it.
class ThreadRandom {
 public:
  explicit ThreadRandom(at::Generator generator);
  ~ThreadRandom();
  ThreadRandom(const ThreadRandom&) = delete;
  ThreadRandom& operator=(const ThreadRandom&) = delete;

  // The generator from which this thread's CPU operations draw: that of the innermost ThreadRandom, or
  // torch's default one.
  static at::Generator generator();

  // Prepares torch's dispatcher, once per process. Call it before other threads compute.
  static void prepare();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
  at::Generator outer_;  // the thread drew from it before
};

}  // namespace lockstep
