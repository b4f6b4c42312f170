#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/tree_names.h>

using namespace lockstep::program;

namespace {

using Names = std::vector<std::string>;

const std::string kLeaf = R"({"type": null, "context": null, "children_spec": []})";

std::string node(const std::string& type, const std::string& context, const Names& children) {
  std::string text = R"({"type": ")" + type + R"(", "context": )" + context + R"(, "children_spec": [)";
  for (size_t i = 0; i < children.size(); ++i) text += (i ? ", " : "") + children[i];
  return text + "]}";
}
std::string tuple(const Names& children) { return node("builtins.tuple", R"("null")", children); }
std::string dict(const std::string& keys, const Names& children) {
  return node("builtins.dict", keys, children);
}
std::string spec(const std::string& tree) { return "[1, " + tree + "]"; }

}  // namespace

// The texts are those that torch.utils._pytree.treespec_dumps() of torch 2.15 gives.
TEST_CASE("Outputs are named as Python returns them") {
  struct Case {
    std::string tree;
    Names names;
  };
  const Case cases[] = {
      {kLeaf, {"output"}},
      {tuple({kLeaf, kLeaf}), {"output.0", "output.1"}},
      {tuple({kLeaf, dict(R"("[\"k\"]")", {kLeaf})}), {"output.0", "output.1.k"}},
      {dict(R"("[\"logits\", \"aux\"]")", {kLeaf, tuple({kLeaf, kLeaf})}), {"logits", "aux.0", "aux.1"}},
      {dict(R"("[3, \"a\"]")", {kLeaf, dict(R"("[\"b\"]")", {kLeaf})}), {"3", "a.b"}},
      {node("builtins.list", R"("null")", {kLeaf}), {"output.0"}},
      {node("collections.OrderedDict", R"("[\"z\", \"y\"]")", {kLeaf, kLeaf}), {"z", "y"}},
      {node(
           "collections.defaultdict",
           R"({"default_factory_module": "builtins", "default_factory_name": "list", "dict_context": ["q"]})",
           {kLeaf}),
       {"q"}},
      {node("collections.namedtuple", R"("P")", {kLeaf, tuple({kLeaf})}), {"a", "b.0"}},
      {node("DC", R"("[[\"u\", \"w\"], [\"v\"]]")", {kLeaf, kLeaf}), {"u", "w"}},
      {node("Output", R"("[\"loss\"]")", {kLeaf}), {"loss"}},
      {node("Other", R"("7")", {kLeaf, kLeaf}), {"output.0", "output.1"}},
  };
  for (const auto& row : cases) {
    INFO(row.tree);
    CHECK(output_names(spec(row.tree), {{"P", {"a", "b"}}}) == row.names);
  }
}

TEST_CASE("Inputs are named as forward()'s arguments") {
  const auto call = spec(tuple({tuple({kLeaf, dict(R"("[\"w\"]")", {kLeaf}), tuple({kLeaf, kLeaf})}),
                                dict(R"("[\"mask\"]")", {kLeaf})}));
  CHECK(input_names(call, {"x", "opts", "pair", "mask"}, {}) ==
        Names{"x", "opts.w", "pair.0", "pair.1", "mask"});
  CHECK(input_names(call, {}, {}) == Names{"input.0", "input.1.w", "input.2.0", "input.2.1", "mask"});
}

TEST_CASE("Trees that name nothing clearly are refused") {
  struct Case {
    std::string spec, words;
  };
  const Case cases[] = {
      {"[2, {}]", "has a tree of protocol 2 (1 is known)"},
      {"[1]", "has no tree of inputs or outputs"},
      {spec(dict(R"("[\"a\"]")", {kLeaf, kLeaf})), "has 1 keys for 2 values in 'output'"},
      {spec(dict(R"("[\"a.b\", \"a\"]")", {kLeaf, dict(R"("[\"b\"]")", {kLeaf})})),
       "has two inputs or outputs 'a.b'"},
      {spec(R"({"type": "builtins.tuple"})"), "has no 'children_spec'"},
  };
  for (const auto& row : cases) {
    INFO(row.spec);
    std::string words;
    try {
      output_names(row.spec, {});
    } catch (const FormatError& error) {
      words = error.what();
    }
    CHECK(words == row.words);
  }
}
