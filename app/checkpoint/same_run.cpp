#include <lockstep/app/checkpoint/same_run.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include <lockstep/app/report/environment.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct Setting {
  const char* key;          // of plan_fields()
  const char* anyway = "";  // the name for --resume-anyway; "": never
};

// What is trained, and how. Another value is another training.
constexpr Setting kTraining[] = {
    {"model"},
    {"parameters"},
    {"data"},
    {"train_rows"},
    {"seed"},
    {"precision"},
    {"optimizer"},
    {"batch_size", "batch-size"},
    {"lr", "lr"},
    {"schedule", "schedule"},
    {"warmup_epochs", "warmup-epochs"},
    {"momentum", "momentum"},
    {"nesterov", "nesterov"},
    {"weight_decay", "weight-decay"},
    {"clip_norm", "clip-norm"},
    {"accumulate", "accumulate"},
    {"bn", "bn"},
    {"invariant", "invariant"},
};

// The order of sums, and which kernels compute.
constexpr const char* kBits[] = {"threads",   "split",    "kernels",       "sync",      "bucket_bytes",
                                 "allreduce", "compress", "deterministic", "cuda_graph"};

std::string shown_value(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json value_of(const Json& fields, const char* key) {
  return fields.is_object() && fields.contains(key) ? fields.at(key) : Json();
}

std::string setting_in_words(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

void refuse(const std::string& key, const Json& saved, const Json& planned, const std::string& anyway) {
  const auto hint = anyway.empty() ? std::string("give the flags that the run was started with")
                                   : fmt::format(
                                         "give the flags that the run was started with, or change it "
                                         "from here on with --resume-anyway {}",
                                         anyway);
  throw WeightsError(fmt::format("the checkpoint's run has {} {}, this one has {}", setting_in_words(key),
                                 shown_value(saved), shown_value(planned)),
                     hint);
}

bool contains(std::span<const std::string> names, const char* name) {
  return *name != '\0' && std::find(names.begin(), names.end(), name) != names.end();
}

bool other_batch_size(const Json& saved, const Json& planned) {
  return value_of(saved, "batch_size") != value_of(planned, "batch_size");
}

}  // namespace

std::vector<std::string> changeable_settings() {
  std::vector<std::string> names;
  for (const auto& setting : kTraining) {
    if (*setting.anyway != '\0') names.emplace_back(setting.anyway);
  }
  names.emplace_back("epochs");
  return names;
}

void take_settings(const Json& saved, TrainFlags& flags) {
  if (const auto batch = value_of(saved, "batch_size"); !flags.batch_size && batch.is_number_integer()) {
    flags.batch_size = batch.get<int64_t>();
  }
  if (const auto lr = value_of(saved, "lr"); !flags.lr && lr.is_number()) flags.lr = lr.get<double>();
}

void check_same_run(const Json& saved, const Json& planned, std::span<const std::string> anyway) {
  for (const auto& [key, name] : kTraining) {
    const auto before = value_of(saved, key), now = value_of(planned, key);
    if (before != now && !contains(anyway, name)) refuse(key, before, now, name);
  }
  // A constant rate does not depend on the length of the run.
  const bool constant = value_of(planned, "schedule") == "constant";
  const auto before = value_of(saved, "epochs"), now = value_of(planned, "epochs");
  if (!constant && before != now && !contains(anyway, "epochs")) refuse("epochs", before, now, "epochs");
}

bool count_steps_anew(RunState& state, const Json& planned) {
  if (!other_batch_size(state.plan, planned)) return false;
  if (state.progress.step != 0) {
    throw WeightsError(
        fmt::format(
            "the checkpoint is of step {} of epoch {}, batches of {} instead of {} begin with an epoch",
            state.progress.step, state.progress.epoch, shown_value(value_of(planned, "batch_size")),
            shown_value(value_of(state.plan, "batch_size"))),
        "go on from a checkpoint at an epoch's end, which --checkpoint-every 1epoch writes");
  }
  state.trainer.steps = (state.progress.epoch - 1) * planned.at("steps_per_epoch").get<int64_t>();
  state.progress.left_out.clear();  // counted in the old steps, and all of them are done
  return true;
}

std::vector<std::string> other_bits(const RunState& state, const Json& planned) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, const Json& before, const Json& now) {
    if (before == now) return;
    differences.push_back(
        fmt::format("{} {} instead of {}", setting_in_words(key), shown_value(now), shown_value(before)));
  };
  const bool invariant = value_of(planned, "invariant") == true;  // the same bits on any number of replicas
  // The rows of each replica.
  const bool same_rows = !other_batch_size(state.plan, planned) &&
                         value_of(state.plan, "devices").size() == value_of(planned, "devices").size();
  for (const auto* key : kBits) {
    if (std::string_view(key) != "split" || same_rows)
      compare(key, value_of(state.plan, key), value_of(planned, key));
  }
  if (!invariant) compare("devices", value_of(state.plan, "devices"), value_of(planned, "devices"));
  const auto here = environment_json();
  const auto& there = state.environment;
  compare("instructions", value_of(there, "instructions"), value_of(here, "instructions"));
  compare("libraries", value_of(there, "libraries"), value_of(here, "libraries"));
  return differences;
}

}  // namespace lockstep
