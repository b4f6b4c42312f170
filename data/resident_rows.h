// Rows of any tensors as a source of batches, for a Trainer:
//
//   const auto train = resident_rows({{"features", X}, {"price", y, Role::kTarget}});
#pragma once

#include <lockstep/support/types.h>

namespace lockstep {

// Returns a factory of sources that give these rows, the first dimension of each tensor, in the types that
// they have. Each device gets one copy of them, which its sources share and the last one frees; where they
// lie already they are not copied. Every epoch has the same rows. Several threads may call the factory at
// once.
SourceFactory resident_rows(const Batch& rows);

}  // namespace lockstep
