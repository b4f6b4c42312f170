// A function with its own stack that one thread can suspend and resume. Works with the sanitizers.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep::testing {

class Fibre {
 public:
  // `body` must not throw. When it returns, resume() returns and must not be called again. A fibre that is
  // destroyed before that is not unwound.
  explicit Fibre(std::function<void()> body);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  void resume();   // runs the body until its next suspend() or its end
  void suspend();  // called by the body: resume() returns

 private:
  static void enter();

  std::function<void()> body_;
  std::unique_ptr<char[]> stack_;
  ucontext_t own_{};
  ucontext_t caller_{};
  // Handles of AddressSanitizer and ThreadSanitizer.
  void* own_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_size_ = 0;
  void* own_context_ = nullptr;
  void* caller_context_ = nullptr;
};

}  // namespace lockstep::testing
