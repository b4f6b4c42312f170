// Prefetches and streaming stores, for passes over more memory than a cache holds. A CPU predicts what a loop
// will read, but not far enough with several arrays, and not beyond a page. And a store first reads the line
// that it changes from memory, unless it bypasses the caches.
#pragma once

#include <lockstep/models/layers/cpu/lanes.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// Prefetches what a loop over `now` reads 1 KB later; no memory needs to be there. Always inlined: otherwise
// GCC sees a function without an effect and drops its calls.
template <class T>
[[gnu::always_inline]] inline void prefetch_ahead(const T* now) {
  __builtin_prefetch(reinterpret_cast<const char*>(now) + 1024);
}

// Stores that bypass the caches, if the capability has them, to memory that is aligned for all of `values`.
// Call streams_done() before another thread reads it.
typedef long long Register __attribute__((vector_size(4 * LOCKSTEP_LANES), may_alias));
typedef long long HalfRegister __attribute__((vector_size(2 * LOCKSTEP_LANES), may_alias));

inline void stream_register(const Register& values, void* to) {
#if LOCKSTEP_LANES == 16
  __builtin_ia32_movntdq512(static_cast<Register*>(to), values);
#elif LOCKSTEP_LANES == 8
  __builtin_ia32_movntdq256(static_cast<Register*>(to), values);
#else
  *static_cast<Register*>(to) = values;
#endif
}
inline void stream_register(const HalfRegister& values, void* to) {
#if LOCKSTEP_LANES == 16
  __builtin_ia32_movntdq256(static_cast<HalfRegister*>(to), values);
#elif LOCKSTEP_LANES == 8
  __builtin_ia32_movntdq(static_cast<HalfRegister*>(to), values);
#else
  *static_cast<HalfRegister*>(to) = values;
#endif
}

inline void stream(const Lanes<float>& values, float* to) { stream_register((Register)values, to); }
inline void stream(const Lanes<float>& values, Bf16* to) {
  stream_register((HalfRegister)to_bf16(values), to);
}
inline void stream(const UpperHalves& values, Bf16Pair* to) { stream_register((Register)values, to); }
template <class T>
inline void stream(const Lanes<T>& values, T* to) {
  store(values, to);
}

inline void streams_done() {
#if LOCKSTEP_LANES >= 8
  __builtin_ia32_sfence();
#endif
}

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
