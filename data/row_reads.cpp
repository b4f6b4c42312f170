#include <lockstep/data/row_reads.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <exception>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/random_streams.h>
#include <lockstep/support/split_mix64.h>
#include <lockstep/support/vector_math.h>

// From <omp.h>, which clang-tidy has only where LLVM's OpenMP is installed.
extern "C" void omp_set_num_threads(int threads);

namespace lockstep {

RowReads::RowReads(uint64_t seed, RowsName name)
    : seed_(seed),
      name_(std::move(name)),
      threads_(at::get_num_threads()),  // torch sets OpenMP's number at its first call in a thread
      generator_(at::detail::createCPUGenerator()),
      random_(generator_) {
  omp_set_num_threads(1);  // of this thread alone, unlike at::set_num_threads()
}

void RowReads::prepare() {
  ThreadRandom::prepare();
  choose_vector_kernels();
}

RowReads::~RowReads() { omp_set_num_threads(threads_); }

void RowReads::read(int64_t epoch, int64_t row, const std::function<void()>& read_row) {
  SplitMix64 draws(seed_, {kRowStream, static_cast<uint64_t>(epoch), static_cast<uint64_t>(row)});
  generator_.set_current_seed(draws.next());
  try {
    read_row();
  } catch (...) {
    const auto when =
        name_.evaluated ? std::string() : fmt::format(" in epoch {}", epoch + name_.first_epoch);
    throw_from(fmt::format("row {} of {} cannot be read{}", row, name_.set, when));
  }
}

void throw_from(const std::string& place) {
  std::string what = "an exception of an unknown type", hint;
  try {
    throw;
  } catch (const Error& error) {
    what = error.message();
    hint = error.hint();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {  // has no text
  }
  std::throw_with_nested(DataError(fmt::format("{}: {}", place, what), hint));
}

}  // namespace lockstep
