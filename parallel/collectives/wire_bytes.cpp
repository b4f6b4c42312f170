#include <lockstep/parallel/collectives/wire_bytes.h>

namespace lockstep {

int64_t wire_bytes_of_sum(int64_t bytes, int processes, Compress compress) {
  if (compress != Compress::kNone) bytes /= 2;
  return 2 * (processes - 1) * bytes / processes;
}

int64_t wire_bytes_of_gather(int64_t bytes, int processes, int most_replicas) {
  return (processes - 1) * most_replicas * bytes;
}

}  // namespace lockstep
