// Words of the errors between processes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <lockstep/support/error.h>

namespace lockstep {

// The first sentence of an error of c10d or Gloo, without full stop, places in their sources and backtrace.
std::string clean_words(const std::string& what);

// "process 2 of 4", "processes 2 and 3 of 4", "processes 0, 2 and 3 of 4"
std::string name_processes(const std::vector<int>& processes, int world);

// "300 s", "0.5 s"
std::string in_seconds(std::chrono::milliseconds time);

// The error that ends a wait for others once one of them has said that it cannot go on.
PeerError peer_failed_error();

}  // namespace lockstep
