#include <lockstep/data/data_folder.h>

#include <cstdlib>

#include <lockstep/data/fashion_mnist.h>

namespace lockstep {

std::string data_folder(const std::optional<std::string>& given) {
  if (given) return *given;
  const char* variable = std::getenv("LOCKSTEP_DATA");
  return std::string(variable && *variable ? variable : kDebianFashionMnist);
}

}  // namespace lockstep
