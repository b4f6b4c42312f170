// Fuzzes files of exported programs. An input that begins as a zip archive is read as a file, as it is and
// with right CRC-32, because changed records almost always have wrong ones. Any other is read as the JSON of
// a graph, of reports about rows, and of a tree of names.
#include <zlib.h>

#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <lockstep/models/program/exported_graph.h>
#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/operations.h>
#include <lockstep/models/program/program_file.h>
#include <lockstep/models/program/row_reports.h>
#include <lockstep/models/program/stored_tensors.h>
#include <lockstep/models/program/tree_names.h>
#include <lockstep/models/program/zip_directory.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using namespace lockstep::program;
using fuzz::require;

namespace {

// True if the code accepted the input. It may also throw FormatError, which has no file's name yet.
template <class Code>
bool accepted(const Code& code) {
  return fuzz::accepted([&] {
    try {
      code();
    } catch (const FormatError& error) {
      throw WeightsError(std::string(error.what()), error.hint());
    }
  });
}

void check_graph(const ExportedGraph& exported) {
  require(exported.schema_major == kSchemaMajor && exported.schema_minor == kSchemaMinor,
          "the schema is known");
  require(exported.inputs.size() == exported.graph.inputs.size(), "each input has a place");
  require(exported.outputs.size() == exported.graph.outputs.size(), "each output has a name");
  std::set<std::string> names;
  for (const auto& output : exported.outputs)
    require(names.insert(output.name).second, "outputs have different names");
  for (const auto& node : exported.graph.nodes) {
    require(accepted([&] { operation_kind(node.target); }), "operations are on the list");
  }
}

void check_tensor(const Archive& archive, const StoredTensor& tensor) {
  uint64_t last = static_cast<uint64_t>(tensor.meta.storage_offset.number);
  for (size_t i = 0; i < tensor.meta.sizes.size(); ++i) {
    const auto size = tensor.meta.sizes[i].number, stride = tensor.meta.strides[i].number;
    require(size >= 0 && stride >= 0, "a stored tensor's sizes are numbers");
    if (size == 0) return;
    last += static_cast<uint64_t>(size - 1) * static_cast<uint64_t>(stride);
  }
  require((last + 1) * element_bytes(tensor.meta.dtype) <= archive.bytes(tensor.record).size(),
          "a stored tensor lies in its record");
}

// Returns the file's digest; nothing if it was refused.
std::optional<std::string> read_file(const std::string& bytes) {
  const fuzz::MemoryFile memory(bytes);
  ProgramFile file;
  if (!accepted([&] { file = read_program_file(memory.path()); })) return std::nullopt;
  require(file.graphs.contains("model"), "there is a graph 'model'");
  for (const auto& [name, graph] : file.graphs) check_graph(graph);
  for (const auto& weight : file.weights) check_tensor(*file.archive, weight);
  for (const auto& [name, constants] : file.constants) {
    for (const auto& constant : constants) check_tensor(*file.archive, constant);
  }
  for (const auto& [record, weight] : file.weight_copies)
    require(file.archive->has(record), "copies are records");
  return file.digest;
}

// Writes the CRC-32 of each record into the directory. (Local headers of torch's files have none.)
std::string with_right_crc(std::string file) {
  std::vector<ZipEntry> entries;
  try {
    entries = read_zip_directory(std::as_bytes(std::span(file)));
  } catch (const FormatError&) {
    return file;
  }
  size_t at = 0;
  for (const auto& entry : entries) {
    const auto crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(file.data() + entry.begin), entry.size));
    for (at = file.find("PK\1\2", at); at != file.npos; at = file.find("PK\1\2", at + 1)) {
      if (file.compare(at + zip::kCentralBytes, entry.name.size(), entry.name) == 0) break;
    }
    if (at == file.npos || at + zip::kCentralBytes > file.size()) return file;
    std::memcpy(file.data() + at + 16, &crc, sizeof(crc));
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = fuzz::text_of(data, size);
  if (text.starts_with("PK")) {
    const auto digest = read_file(text);
    const auto repaired = with_right_crc(text);
    const auto again = read_file(repaired);
    require(!digest || (repaired == text && again == digest), "a file that is accepted has right CRC-32");
    return 0;
  }
  accepted([&] { output_names(text, {}); });
  accepted([&] { input_names(text, {"x"}, {}); });
  if (accepted([&] { read_row_reports(text); })) return 0;
  ExportedGraph exported;
  if (accepted([&] { exported = read_exported_graph(text); })) check_graph(exported);
  return 0;
}
