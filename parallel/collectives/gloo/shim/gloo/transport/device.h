// Stand-in for a header of Gloo (../context.h): types that c10d passes on or deletes.
#pragma once

namespace gloo::transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace gloo::transport
