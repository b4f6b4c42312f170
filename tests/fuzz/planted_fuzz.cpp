// A harness with planted defects, which driver.sh expects the driver to find.
#include <vector>

#include <lockstep/tests/fuzz/allocations.h>
#include <lockstep/tests/fuzz/harness.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto text = fuzz::text_of(data, size);
  fuzz::accepted_within_memory(size, [&] {
    if (!text.starts_with("{")) throw DataError("no brace");
    if (text.find("token") == std::string::npos) throw DataError("no token");  // inputs that pass are kept
    fuzz::require(text.find("1e308") == std::string::npos, "there is no 1e308");
    if (text.find("-1") != std::string::npos) throw std::bad_alloc();
    if (const auto at = text.find("heap"); at != std::string::npos) {
      std::vector<char> block(at << 20);
      asm volatile("" : : "r"(block.data()) : "memory");  // else an optimiser may remove it
    }
  });
  return 0;
}
