// A system that starts no more threads. ThreadSanitizer starts them with attributes of its own.
#pragma once

#include <pthread.h>

namespace lockstep::testing {

// While it lives, the default stack size exceeds the address space, so that no thread can start.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t huge = usual_;
    pthread_attr_setstacksize(&huge, size_t{1} << 48);
    pthread_setattr_default_np(&huge);
  }
  ~NoThreads() { pthread_setattr_default_np(&usual_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t usual_;
};

}  // namespace lockstep::testing
