#include <lockstep/parallel/main_thread.h>

#include <ATen/Parallel.h>

namespace lockstep {

void leave_cores_to_replicas() { at::set_num_threads(1); }

}  // namespace lockstep
