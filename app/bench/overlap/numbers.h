// What the figures of `bench overlap` mean: how much of a copy was hidden, what ran beside what. No torch in
// here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

// Of the shorter of two, the part that cost no time because it ran while the longer one did: 0 where they
// took turns, 1 where the two together took as long as the longer one. Seconds, all above 0.
double hidden_part(double compute, double copy, double together);

// Its median over turns; nothing with fewer than three. Throws UsageError when the numbers of turns differ.
std::optional<double> hidden_part(const std::vector<double>& compute, const std::vector<double>& copy,
                                  const std::vector<double>& together);

bool is_copy(const Trace::Event& event);  // by its track; anything else is computing

// Computing events during which a copy, of any rank, was under way for some time.
int64_t computed_beside_a_copy(const std::vector<Trace::Event>& events);

// The most computing events that were under way at one moment.
int64_t most_at_once(const std::vector<Trace::Event>& events);

// Copies "copy N" that began more than `slack` seconds before the same rank's "product N" had ended, or that
// have none.
int64_t copies_ahead(const std::vector<Trace::Event>& events, double slack);

// [{"experiment", "track": "cpu:0 compute", "name", "begin", "end"}]: seconds since the first event began.
// processes: of each rank.
nlohmann::ordered_json timeline(const std::string& experiment, const std::vector<Trace::Event>& events,
                                const std::vector<std::string>& processes);

}  // namespace lockstep
