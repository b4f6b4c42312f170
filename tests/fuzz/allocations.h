// How much memory code takes: counted under AddressSanitizer, in other builds always 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include <lockstep/tests/fuzz/harness.h>

extern "C" __attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(
    void (*)(const volatile void*, size_t), void (*)(const volatile void*));

namespace lockstep::fuzz {
namespace detail {

// The blocks that are allocated, and the most bytes at once since the last reset. (A hook for free() can no
// longer ask AddressSanitizer for the size.)
struct Allocations {
  std::mutex mutex = {};
  std::unordered_map<const volatile void*, int64_t> blocks = {};
  int64_t bytes = 0, most = 0;
};

inline Allocations& allocations() {
  static auto& all = *new Allocations;
  return all;
}

inline thread_local bool counting = false;  // the table's own blocks are not counted

template <class Change>
void count(const Change& change) {
  if (counting) return;
  counting = true;
  const std::lock_guard lock(allocations().mutex);
  change(allocations());
  counting = false;
}

inline void allocated(const volatile void* block, size_t size) {
  count([&](Allocations& all) {
    all.blocks[block] = static_cast<int64_t>(size);
    all.bytes += static_cast<int64_t>(size);
    all.most = std::max(all.most, all.bytes);
  });
}

inline void released(const volatile void* block) {
  count([&](Allocations& all) {
    const auto found = all.blocks.find(block);
    if (found == all.blocks.end()) return;  // older than the hooks
    all.bytes -= found->second;
    all.blocks.erase(found);
  });
}

// Once: the sanitizer would call equal hooks again.
inline void count_allocations() {
  static const bool installed = __sanitizer_install_malloc_and_free_hooks &&
                                __sanitizer_install_malloc_and_free_hooks(allocated, released);
  static_cast<void>(installed);
}

// Starts to look for the most bytes at once. Returns those that are allocated now.
inline int64_t reset_most() {
  int64_t bytes = 0;
  count([&](Allocations& all) { bytes = all.most = all.bytes; });
  return bytes;
}

inline int64_t most_bytes() {
  int64_t most = 0;
  count([&](Allocations& all) { most = all.most; });
  return most;
}

}  // namespace detail

// Returns true if the code accepted the input. It may take twice the input's bytes and 16 MiB at once.
template <class Code>
bool accepted_within_memory(uint64_t input_bytes, const Code& code) {
  detail::count_allocations();
  const auto before = detail::reset_most();
  const bool taken = accepted(code);
  require(detail::most_bytes() - before <= 2 * static_cast<int64_t>(input_bytes) + (16 << 20),
          "an input takes at most twice its size and 16 MiB");
  return taken;
}

}  // namespace lockstep::fuzz
