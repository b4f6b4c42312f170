// Compresses bytes as gzip does, for tests with damaged gzipped files.
#pragma once

#include <zlib.h>

#include <stdexcept>

#include <lockstep/tests/data/idx_bytes.h>

namespace lockstep::testing {

inline Bytes gzipped(const Bytes& bytes) {
  z_stream zlib = {};
  constexpr int kGzipWrapper = 16;
  if (deflateInit2(&zlib, 9, Z_DEFLATED, MAX_WBITS + kGzipWrapper, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2 failed");
  }
  Bytes packed(deflateBound(&zlib, bytes.size()));
  zlib.next_in = const_cast<Bytef*>(bytes.data());
  zlib.avail_in = static_cast<uInt>(bytes.size());
  zlib.next_out = packed.data();
  zlib.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&zlib, Z_FINISH);
  packed.resize(zlib.total_out);
  deflateEnd(&zlib);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate failed");
  return packed;
}

}  // namespace lockstep::testing
