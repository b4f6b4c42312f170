// The values that processes tell each other, and what must be the same in all of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Endpoint;
class ProcessGroup;

// The form of all texts between processes: JSON on one line. Bytes that are not UTF-8 are replaced.
std::string wire_text(const nlohmann::json& value);

// Tells the other processes `own`, and returns the values of all, by process. what: names the value,
// "communicator". All processes call it; a null group is of a process alone. Throws UsageError when another
// process tells something else, and as ProcessGroup::gather() does.
std::vector<nlohmann::json> gather_values(ProcessGroup* group, std::string_view what,
                                          const nlohmann::json& own);

// Values that must be the same are compared as lines of text, so that an error can show the first two that
// differ: "the models differ: process 1 has b [3] where process 0 has b [2]".
using Lines = std::vector<std::string>;

// Throws that error (UsageError) unless all are the same. all: by process or rank. whose: "process" or
// "rank". what: "models". hint: of the error.
void require_same(const std::vector<Lines>& all, std::string_view whose, std::string_view what,
                  std::string_view hint);

// The same for the lines of all processes, or of all ranks, which call it and get the same error. The first
// throws as gather_values() does, the second also the error that ended a collective.
void agree(ProcessGroup* group, std::string_view what, const Lines& own, std::string_view hint);
void agree(Endpoint& endpoint, std::string_view what, const Lines& own, std::string_view hint);

}  // namespace lockstep
