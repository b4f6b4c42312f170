#include <lockstep/parallel/communicator.h>

#include <lockstep/parallel/replica_thread.h>

namespace lockstep {

void Work::wait() {
  if (!done_.valid()) return;
  if (const auto event = done_.get()) event->block(current_stream(event->device()));
}

}  // namespace lockstep
