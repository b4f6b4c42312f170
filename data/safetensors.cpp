#include <lockstep/data/safetensors.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <span>
#include <utility>

#include <lockstep/data/formats/safetensors_header.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "values are read and written as they lie in memory");

// In the order of TensorDtype.
constexpr std::array kTorchDtypes = {torch::kUInt64,
                                     torch::kInt64,
                                     torch::kFloat64,
                                     torch::kComplexFloat,
                                     torch::kFloat32,
                                     torch::kUInt32,
                                     torch::kInt32,
                                     torch::kBFloat16,
                                     torch::kFloat16,
                                     torch::kUInt16,
                                     torch::kInt16,
                                     torch::kFloat8_e5m2fnuz,
                                     torch::kFloat8_e4m3fnuz,
                                     torch::kFloat8_e8m0fnu,
                                     torch::kFloat8_e4m3fn,
                                     torch::kFloat8_e5m2,
                                     torch::kInt8,
                                     torch::kUInt8,
                                     torch::kBool};

struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const int fd;
};

// A file to read from. Its functions throw WeightsError.
class InputFile {
 public:
  explicit InputFile(const fs::path& path)
      : name_(path.string()),
        file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC |
                                       O_NONBLOCK)) {  // O_NONBLOCK: does not wait for the writer of a pipe
    struct stat status {};
    if (file_.fd < 0 || ::fstat(file_.fd, &status) != 0) fail("cannot be read: " + errno_text(errno));
    if (!S_ISREG(status.st_mode)) fail("is not a regular file");
    size_ = static_cast<uint64_t>(status.st_size);
  }

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }

  void read(uint64_t offset, std::span<std::byte> into) const {
    while (!into.empty()) {
      const auto count = ::pread(file_.fd, into.data(), into.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("cannot be read: " + errno_text(errno));
      if (count == 0) fail(fmt::format("was cut from {} to {} bytes while it was read", size_, offset));
      offset += static_cast<uint64_t>(count);
      into = into.subspan(static_cast<size_t>(count));
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw safetensors_error(name_, what); }

 private:
  std::string name_;
  Descriptor file_;
  uint64_t size_ = 0;
};

constexpr uint64_t kLengthBytes = 8;

std::string read_header_text(const InputFile& file) {
  if (file.size() < kLengthBytes)
    file.fail(fmt::format("is truncated: it has {} bytes, at least 10 were expected", file.size()));
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kSafetensorsMostHeaderBytes) {
    file.fail(fmt::format(
        "is not a safetensors file: its first 8 bytes promise a header of {} bytes, at most {} were "
        "expected",
        length, kSafetensorsMostHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    file.fail(fmt::format("is truncated: it promises a header of {} bytes and has {} more", length,
                          file.size() - kLengthBytes));
  }
  std::string header(length, ' ');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  return header;
}

struct Header {
  SafetensorsHeader content;
  uint64_t data = 0;  // where in the file the data begin
};

Header read_header(const InputFile& file) {
  const auto text = read_header_text(file);
  const uint64_t data = kLengthBytes + text.size();
  return {parse_safetensors_header(text, file.size() - data, file.name()), data};
}

torch::ScalarType torch_dtype(TensorDtype dtype) { return kTorchDtypes[static_cast<size_t>(dtype)]; }

TensorFile shapes_of(const SafetensorsHeader& header) {
  TensorFile file = {{}, header.metadata};
  for (const auto& entry : header.tensors) {
    const auto options = torch::dtype(torch_dtype(entry.dtype)).device(torch::kMeta);
    file.tensors.push_back({entry.name, torch::empty(entry.shape, options)});
  }
  return file;
}

TensorEntry entry_of(const NamedTensor& named) {
  const auto& [name, tensor] = named;
  const auto refuse = [&](const std::string& why, const std::string& hint = {}) {
    throw OutputError(fmt::format("cannot save tensor '{}': {}", named.name, why), hint);
  };
  if (!tensor.defined()) refuse("it is undefined");
  if (tensor.layout() != torch::kStrided || tensor.is_meta()) refuse("it is not a dense tensor with values");
  const auto* dtype = std::ranges::find(kTorchDtypes, tensor.scalar_type());
  if (dtype == kTorchDtypes.end())
    refuse(
        fmt::format("the format has no dtype {}", torch::toString(tensor.scalar_type())),
        "convert it; complex numbers can be saved as complex64 or, with torch::view_as_real, as real ones");
  return {name, static_cast<TensorDtype>(dtype - kTorchDtypes.begin()), tensor.sizes().vec()};
}

SafetensorsLayout layout_of(const TensorFile& file) {
  std::vector<TensorEntry> entries;
  for (const auto& named : file.tensors) entries.push_back(entry_of(named));
  return lay_out_safetensors(entries, file.metadata);
}

}  // namespace

TensorFile load_safetensors(const fs::path& path, const std::function<void(const TensorFile& shapes)>& check,
                            const TensorAllocator& memory) {
  const InputFile input(path);
  auto [header, data] = read_header(input);
  if (check) check(shapes_of(header));

  TensorFile file = {{}, std::move(header.metadata)};
  for (auto& [name, dtype, shape, begin, end] : header.tensors) {
    auto tensor = memory(shape, torch_dtype(dtype));
    const std::span values(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
    input.read(data + begin, values);
    // A C++ bool is 0 or 1.
    if (dtype == TensorDtype::kBool && std::ranges::any_of(values, [](auto b) { return b > std::byte{1}; }))
      input.fail("has a tensor of dtype BOOL with other bytes than 0 and 1");
    file.tensors.push_back({std::move(name), std::move(tensor)});
  }
  return file;
}

TensorFile read_safetensors_shapes(const fs::path& path) {
  return shapes_of(read_header(InputFile(path)).content);
}

void write_safetensors(const TensorFile& file, const std::function<void(std::span<const std::byte>)>& write) {
  const auto layout = layout_of(file);
  write(std::as_bytes(std::span(layout.head)));
  for (const size_t i : layout.order) {
    // One at a time, so that there is no second copy of all weights.
    const auto host = file.tensors[i].tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
    write({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
}

void save_safetensors(const fs::path& path, const TensorFile& file, bool overwrite) {
  need_regular_file(path);
  AtomicFile out(path, overwrite);
  write_safetensors(file, [&](auto bytes) { out.write(bytes); });
  out.commit();
}

void check_can_save(const TensorFile& file) { layout_of(file); }

void check_can_save(const fs::path& path, bool overwrite) {
  need_regular_file(path);
  const AtomicFile probe(path, overwrite);
}

}  // namespace lockstep
