// Catch2 under the names of version 3, for every test. Debian 12 has version 2, Debian 13 version 3.
#pragma once

#include <catch2/catch.hpp>

namespace Catch::Matchers {

inline auto ContainsSubstring(const std::string& text) { return Contains(text); }

}  // namespace Catch::Matchers
