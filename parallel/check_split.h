// A check of a model's loss and metrics, for the first lines of a program:
//
//   check_split(factory, train, first_batch);  // once, before there is a Trainer; throws what is wrong
//   Trainer trainer(factory, train, test, options);
//
// Trainer adds the losses and metrics of the replicas' rows. So they are sums over rows, and any number of
// replicas takes the same steps. A loss that is a mean by mistake trains without a sign of it: its steps have
// another size, and depend on the number of replicas.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/parallel/training/bn_policy.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Computes these rows, at least five, as one shard and as two unequal ones, and compares the gradient, the
// loss, its weight and all metrics, in evaluation and in training mode. They must agree to 1e-5 of their
// size, since a part of a model may compute in float32; sums that are bfloat16 or float16, to 2e-2. Throws
// UsageError with both values and a hint for:
// - a loss, a metric or a weight that is no sum over rows, such as a mean;
// - a gradient that depends on the split where the loss does not;
// - a weight of the loss that depends on the parameters (Model::weight is of the batch alone);
// - a batch norm in training mode, whose statistics are of each replica's rows. That may be as you want it.
//   With BnPolicy::kSync Trainer gives lockstep's own those of the whole batch, and refuses torch's: pass
//   that here, too, or to check all but the batch norms, of either kind. Then the sums of 0 rows must be 0,
//   since replicas without rows compute with kSync;
// - a model that draws random numbers in evaluation mode, which cannot be compared. Those that it draws in
//   training mode alone, such as dropout, are each replica's own: then evaluation mode counts.
// Throws also UsageError and FailedError for faults of the model and the data, as Trainer does.
//
// It builds a model of its own, on the host, in double and with weights of its own random numbers: it changes
// no Trainer and does not touch torch's default generator. No collective: each process that calls it gets the
// same error. Costs nine forward and backward passes at most.
void check_split(const ModelFactory& factory, const SourceFactory& source, std::span<const int64_t> rows,
                 BnPolicy bn = BnPolicy::kRoot);

}  // namespace lockstep
