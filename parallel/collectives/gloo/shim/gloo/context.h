// Stands in for Gloo's header of this name, which torch's package lacks and ProcessGroupGloo.hpp includes. Only
// what that header names is declared, and nothing is defined: a definition of ours could take the place of the
// one in torch's library, whose classes look different.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
};

}  // namespace gloo
