#include <lockstep/tests/support/cuda_emulation/fibre.h>

#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace lockstep::testing {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

thread_local Fibre* entering = nullptr;

// Before and after a switch to the stack [to, to + bytes); each does nothing without its sanitizer.
void before_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* to,
                   [[maybe_unused]] size_t bytes, [[maybe_unused]] void* context) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake_stack, to, bytes);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(context, 0);
#endif
}

void after_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** from,
                  [[maybe_unused]] size_t* bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
#endif
}

}  // namespace

Fibre::Fibre(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<char[]>(kStackBytes)) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  makecontext(&own_, &Fibre::enter, 0);
#ifdef __SANITIZE_THREAD__
  own_context_ = __tsan_create_fiber(0);
#endif
}

Fibre::~Fibre() {
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(own_context_);
#endif
}

void Fibre::enter() {
  Fibre& self = *std::exchange(entering, nullptr);
  after_switch(nullptr, &self.caller_stack_, &self.caller_stack_size_);
  self.body_();
  before_switch(nullptr, self.caller_stack_, self.caller_stack_size_,
                self.caller_context_);  // never to come back
  setcontext(&self.caller_);
}

void Fibre::resume() {
  entering = this;
#ifdef __SANITIZE_THREAD__
  caller_context_ = __tsan_get_current_fiber();
#endif
  void* fake_stack = nullptr;
  before_switch(&fake_stack, stack_.get(), kStackBytes, own_context_);
  swapcontext(&caller_, &own_);
  after_switch(fake_stack, nullptr, nullptr);
}

void Fibre::suspend() {
  before_switch(&own_fake_stack_, caller_stack_, caller_stack_size_, caller_context_);
  swapcontext(&own_, &caller_);
  after_switch(own_fake_stack_, &caller_stack_, &caller_stack_size_);
}

}  // namespace lockstep::testing
