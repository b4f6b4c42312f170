#include <lockstep/models/program/tree_names.h>

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/json_value.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

constexpr int64_t kProtocol = 1;  // of the text

std::string key_text(const Json& key) {
  if (key.is_text()) return key.text();
  return fmt::format("{}", key.integer());
}

std::vector<std::string> key_texts(const Json& keys) {
  std::vector<std::string> texts;
  for (const auto& key : keys.list()) texts.push_back(key_text(key));
  return texts;
}

bool has_keys(const Json& list, size_t count) {
  return list.is_list() && list.list().size() == count &&
         std::ranges::all_of(list.list(), [](const Json& key) { return key.is_text(); });
}

// The keys of a node's children, such as of a dict, or nothing for those that only have numbers: a tuple, a
// list, or another type of Python whose context does not name them.
std::optional<std::vector<std::string>> keys_of(const Json& node, const NamedTuples& named_tuples) {
  const auto& type = node.at("type").text();
  const auto& context = node.at("context");
  const auto count = node.at("children_spec").list().size();
  if (type == "collections.namedtuple") {
    const auto fields = named_tuples.find(context.text());
    return fields == named_tuples.end() ? std::nullopt : std::optional(fields->second);
  }
  if (type == "builtins.tuple" || type == "builtins.list" || type == "collections.deque") return std::nullopt;
  const auto keys = context.is_text() ? parse_json(context.text()) : context;
  if (type == "builtins.dict" || type == "collections.OrderedDict") return key_texts(keys);
  if (type == "collections.defaultdict") return key_texts(keys.at("dict_context"));
  if (has_keys(keys, count)) return key_texts(keys);
  // A registered dataclass has [keys, keys that are None].
  if (keys.is_list() && keys.list().size() == 2 && has_keys(keys.list()[0], count))
    return key_texts(keys.list()[0]);
  return std::nullopt;
}

bool is_leaf(const Json& node) { return node.at("type").is_null(); }

class Namer {
 public:
  explicit Namer(const NamedTuples& named_tuples) : named_tuples_(named_tuples) {}

  // Adds the names of the leaves below a node with this name. `bare`: keys stand alone, without the name.
  void add(const Json& node, const std::string& name, bool bare = false) {
    if (is_leaf(node)) {
      names.push_back(name);
      return;
    }
    const auto& children = node.at("children_spec").list();
    const auto keys = keys_of(node, named_tuples_);
    if (keys && keys->size() != children.size()) {
      throw FormatError(
          fmt::format("has {} keys for {} values in {}", keys->size(), children.size(), in_quotes(name)));
    }
    for (size_t i = 0; i < children.size(); ++i) {
      const auto key = keys ? (*keys)[i] : fmt::format("{}", i);
      add(children[i], keys && bare ? key : fmt::format("{}.{}", name, key));
    }
  }

  std::vector<std::string> take() {
    auto sorted = names;
    std::ranges::sort(sorted);
    const auto twice = std::ranges::adjacent_find(sorted);
    if (twice != sorted.end())
      throw FormatError(fmt::format("has two inputs or outputs {}", in_quotes(*twice)));
    return std::move(names);
  }

  std::vector<std::string> names;

 private:
  const NamedTuples& named_tuples_;
};

// Returns the tree of [1, {...}].
Json tree_of(std::string_view spec) {
  auto json = parse_json(spec);
  const auto& parts = json.list();
  if (parts.size() != 2) throw FormatError("has no tree of inputs or outputs");
  if (parts[0].integer() != kProtocol) {
    throw FormatError(fmt::format("has a tree of protocol {} ({} is known)", parts[0].integer(), kProtocol));
  }
  return parts[1];
}

}  // namespace

std::vector<std::string> output_names(std::string_view spec, const NamedTuples& named_tuples) {
  Namer namer(named_tuples);
  namer.add(tree_of(spec), "output", true);
  return namer.take();
}

std::vector<std::string> input_names(std::string_view spec, const std::vector<std::string>& arguments,
                                     const NamedTuples& named_tuples) {
  const auto tree = tree_of(spec);
  const auto& parts = tree.at("children_spec").list();
  if (parts.size() != 2 || is_leaf(parts[0]) || is_leaf(parts[1]))
    throw FormatError("has inputs that are no call's");
  Namer namer(named_tuples);
  const auto& positional = parts[0].at("children_spec").list();
  for (size_t i = 0; i < positional.size(); ++i) {
    namer.add(positional[i], i < arguments.size() ? arguments[i] : fmt::format("input.{}", i));
  }
  namer.add(parts[1], "", true);
  return namer.take();
}

}  // namespace lockstep::program
