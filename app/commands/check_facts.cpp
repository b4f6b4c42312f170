#include <lockstep/app/commands/check_facts.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/data/data_folder.h>
#include <lockstep/data/data_kind.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

std::string row_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Images of files can be made to fit, and so can data that are made of a seed.
std::string hint_for_shape(const NetworkFacts& facts, const NetworkFacts& own, const LoadedData& data) {
  const auto& shape = facts.row_shape;
  if (shape.size() != 3) return "name the data that it was trained on, or others of this shape";
  const bool folder = data.kind == to_string(DataKind::kImageFolder);  // whose images get any channels
  const bool images = data.set.row_noun == "image" && data.kind != "synthetic" && own.row_shape.size() == 3 &&
                      own.row_shape[0] == shape[0];
  if ((folder || images) && shape[1] == shape[2]) {
    return fmt::format("--image-size {} resizes and crops images", shape[1]);
  }
  if (data.kind == "synthetic") {
    return fmt::format("--synthetic-shape {}x{}x{}:{}", shape[0], shape[1], shape[2], facts.classes.size());
  }
  return "name the data that it was trained on, or others of this shape";
}

// Returns what is odd, or throws.
std::vector<std::string> check_shape(const NetworkFacts& facts, const NetworkFacts& own,
                                     const LoadedData& data) {
  if (facts.row_shape == own.row_shape) return {};
  auto text = fmt::format("the network was trained on rows {}, those of {} are {}", row_text(facts.row_shape),
                          data.set.name, row_text(own.row_shape));
  // A size that was asked for is a question about sizes, as far as the network takes it.
  const bool asked = data.flags.image_size && *data.flags.image_size != facts.image_size;
  const bool images = facts.row_shape.size() == 3 && own.row_shape.size() == 3;
  if (asked && images && facts.row_shape[0] == own.row_shape[0]) return {text};
  throw DataError(std::move(text), hint_for_shape(facts, own, data));
}

// Classes without a name have their number.
bool has_name(const NetworkFacts& facts, size_t label) {
  return facts.classes[label] != std::to_string(label);
}

void check_classes(const NetworkFacts& facts, const NetworkFacts& own, const LoadedData& data) {
  if (own.classes.size() > facts.classes.size()) {
    throw DataError(fmt::format("the network knows {} classes, {} has {}", facts.classes.size(),
                                data.set.name, own.classes.size()),
                    "name data with the classes that it was trained on");
  }
  for (size_t label = 0; label < own.classes.size(); ++label) {
    if (facts.classes[label] == own.classes[label] || !has_name(facts, label) || !has_name(own, label))
      continue;
    throw DataError(
        fmt::format("class {} is {} for the network, and {} in {}", label, in_quotes(facts.classes[label]),
                    in_quotes(own.classes[label]), data.set.name),
        "give the classes the names and the order that they were trained with");
  }
}

}  // namespace

DataFlags with_facts(DataFlags flags, const NetworkFacts& facts) {
  const auto path = data_folder(flags.path);
  if (is_known_data(path) || !facts.bytes || facts.row_shape.size() != 3) return flags;
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return flags;
  const bool folder = kind_of(path) == DataKind::kImageFolder;
  if (!flags.image_size && facts.image_size > 0) flags.image_size = facts.image_size;
  if (!folder) return flags;
  const auto channels = facts.row_shape.front();
  if (channels == 1 || channels == 3) flags.channels = static_cast<int>(channels);
  return flags;
}

std::vector<std::string> check_facts(const NetworkFacts& facts, const LoadedData& data) {
  const auto own = facts_of(data.set);
  if (!own) return {};  // what takes such data knows what it wants
  auto odd = check_shape(facts, *own, data);
  check_classes(facts, *own, data);
  if (own->classes.size() < facts.classes.size()) {
    odd.push_back(fmt::format("the network knows {} classes, {} has the first {} of them",
                              facts.classes.size(), data.set.name, own->classes.size()));
  }
  if (own->bytes != facts.bytes) {
    const auto text = [](bool bytes) { return bytes ? "bytes" : "floats"; };
    odd.push_back(fmt::format("the network was trained on {}, {} holds {}{}", text(facts.bytes),
                              data.set.name, text(own->bytes),
                              own->bytes ? ", which are divided by 255" : ""));
  }
  return odd;
}

Normalization normalization_of(const NetworkFacts& facts) {
  return {.mean = facts.mean, .deviation = facts.deviation};
}

}  // namespace lockstep
