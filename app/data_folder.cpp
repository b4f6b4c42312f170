#include <lockstep/app/data_folder.h>

#include <cstdlib>

#include <lockstep/data/fashion_mnist.h>

namespace lockstep {

std::string data_folder(const std::optional<std::string>& flag) {
  if (flag) return *flag;
  const char* variable = std::getenv("LOCKSTEP_DATA");
  return std::string(variable && *variable ? variable : kDebianFashionMnist);
}

}  // namespace lockstep
