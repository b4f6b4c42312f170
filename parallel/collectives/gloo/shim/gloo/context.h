// torch links Gloo but does not install Gloo's headers. Its ProcessGroupGloo.hpp includes five of them. This
// folder has stand-ins with as much as that header needs, in torch 2.11 and 2.15. They declare and define
// nothing: torch's classes have other layouts, and a gloo symbol of ours could take the place of torch's.
// (Hence never construct c10d's GlooStore either: its vtable would be made here.)
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  std::chrono::milliseconds getTimeout() const;
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
