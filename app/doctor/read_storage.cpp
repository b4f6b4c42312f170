// Facts of folders, of the data set, and of the place where processes meet.
#include <fmt/format.h>
#include <netdb.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <system_error>
#include <vector>

#include <lockstep/app/doctor/read_facts.h>
#include <lockstep/app/files/nearest_path.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/data_kind.h>
#include <lockstep/data/formats/cifar.h>
#include <lockstep/data/images/image_files.h>
#include <lockstep/parallel/collectives/gloo/addresses.h>
#include <lockstep/parallel/collectives/gloo/sockets.h>
#include <lockstep/parallel/world/host_names.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/temporary_file.h>
#include <lockstep/support/split_text.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = size_t{1} << 20;  // bytes that are written through at once
constexpr int kMostPieces = 16;
constexpr double kMostSeconds = .25;
constexpr uint16_t kUsualPort = 29500;  // torchrun's

// Closes the file at the end. Its name is gone from the start: nothing stays, even if the process is killed.
class NamelessFile {
 public:
  explicit NamelessFile(const fs::path& folder) {
    const auto file = create_temporary(folder);
    fd_ = file.fd;
    ::unlink(file.path.c_str());
  }
  ~NamelessFile() { ::close(fd_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Returns bytes per second. Throws std::system_error.
double write_speed(const fs::path& folder) {
  const NamelessFile file(folder);
  std::vector<char> bytes(kPiece);
  uint32_t state = 1;
  for (auto& byte : bytes)
    byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);  // not compressible
  Stopwatch watch;
  double written = 0, seconds = 0;
  for (int piece = 0; piece < kMostPieces && seconds < kMostSeconds; ++piece) {
    const auto count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 || ::fdatasync(file.get()) != 0) throw std::system_error(errno, std::generic_category());
    written += static_cast<double>(count);
    seconds += watch.lap();
  }
  return written / seconds;
}

bool is_own_host(const Addresses& addresses) {
  for (auto* entry = addresses.list.get(); entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    const int error = ::getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0,
                                    NI_NUMERICHOST);
    if (error == 0 && is_own_address(text.data())) return true;
  }
  return false;
}

}  // namespace

FolderFacts read_folder(const fs::path& folder) {
  FolderFacts facts{.path = folder.string()};
  const auto existing = nearest_path(folder);
  struct statvfs system {};
  if (::statvfs(existing.c_str(), &system) == 0) {
    facts.free_bytes = static_cast<int64_t>(system.f_bavail) * static_cast<int64_t>(system.f_frsize);
  }
  try {
    facts.bytes_per_second = write_speed(existing);
  } catch (const std::system_error& error) {
    facts.problem = error.code().message();
  }
  return facts;
}

namespace {

// A folder that a share is to split has no test images.
std::string images_in(const std::string& path) {
  const auto folder = find_image_folder(path, {.only_notice = true});
  return fmt::format("{} training and {} test images in {} classes", with_commas(std::ssize(folder.train)),
                     with_commas(std::ssize(folder.test)), with_commas(std::ssize(folder.class_names)));
}

std::string cifar_rows_in(const std::string& folder) {
  const auto files = find_cifar_files(folder);
  int64_t train = 0;
  for (const auto& file : files.train) train += cifar_rows(file, files.label_bytes);
  return fmt::format("{} training and {} test images of CIFAR-{}", with_commas(train),
                     with_commas(cifar_rows(files.test, files.label_bytes)), files.classes);
}

}  // namespace

DataFacts read_data(const std::optional<std::string>& data) {
  DataFacts facts{.folder = data_folder(data)};
  if (is_known_data(facts.folder)) return facts;
  try {
    switch (kind_of(facts.folder)) {
      case DataKind::kTensorFile:
        check_tensor_data(facts.folder);
        facts.holds = "tensors to train and to test on";
        break;
      case DataKind::kImageFolder:
        facts.holds = images_in(facts.folder);
        break;
      case DataKind::kIdx:
        facts.files = verify_fashion_mnist(facts.folder);
        break;
      default:
        facts.holds = cifar_rows_in(facts.folder);
    }
  } catch (const Error& error) {
    facts.problem = Problem{error.message(), error.hint()};
  }
  return facts;
}

void read_meeting_place(const std::optional<std::string>& master, HostNetworkFacts& network) {
  network.port = kUsualPort;
  if (master) {
    try {
      const auto world = find_world({.rank = 0, .world_size = 2, .master = master},
                                    [](const auto&) { return std::nullopt; });
      network.host = world.master_host;
      network.port = world.master_port;
    } catch (const Error& error) {
      network.master_problem = Problem{error.message(), error.hint()};
      return;
    }
    network.route = address_towards(network.host, network.port);
    network.own_host = is_own_host(find_addresses(network.host, network.port));
    if (!network.own_host) return;
  }
  try {
    listen_on(master ? network.host : kLoopback, network.port);
  } catch (const Error& error) {
    network.port_problem = error.message();
  }
}

std::vector<std::string> found_programs(const std::vector<std::string>& names, const std::string& path) {
  const auto folders = split_text(path, ':');
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found), [&](const auto& name) {
    return std::any_of(folders.begin(), folders.end(), [&](const auto folder) {
      return ::access((fs::path(folder) / name).c_str(), X_OK) == 0;
    });
  });
  return found;
}

}  // namespace lockstep
