// Evaluates times and traces of `bench overlap`: how much of a copy was hidden, what ran at the same time.
// Without torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/json.h>
#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

// The part of the shorter of the two that cost no time because it ran during the longer: 0 if they ran one
// after the other, 1 if both together took as long as the longer one. Seconds by repetition, all above 0; the
// median counts. Empty with fewer than three. Throws UsageError if the sizes differ.
std::optional<double> hidden_part(const std::vector<double>& compute, const std::vector<double>& copy,
                                  const std::vector<double>& together);

bool is_copy(const Trace::Event& event);  // by its track; other events are computing

// The number of computing events during which a copy, of any rank, was running.
int64_t computed_beside_a_copy(const std::vector<Trace::Event>& events);

// The largest number of computing events at one moment.
int64_t most_at_once(const std::vector<Trace::Event>& events);

// The number of events "copy N" that began more than `slack` seconds before the same rank's "matmul N" ended,
// or that have no "matmul N".
int64_t copies_ahead(const std::vector<Trace::Event>& events, double slack);

// [{"experiment", "track": "cpu:0 compute", "name", "begin", "end"}], in seconds since the first event began.
// processes: a name for each rank.
Json timeline(const std::string& experiment, const std::vector<Trace::Event>& events,
              const std::vector<std::string>& processes);

}  // namespace lockstep
