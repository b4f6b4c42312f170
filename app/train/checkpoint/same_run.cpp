#include <lockstep/app/train/checkpoint/same_run.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <lockstep/app/files/json.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/parallel/optimizer/lr_schedule.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Keys of what accuracy and time depend on beside the training.
constexpr std::array<const char*, 4> kTestSettings = {"replicas", "devices", "test_rows", "test_data_hash"};

Json value_at(const Json& fields, const std::string& key) {
  return fields.is_object() && fields.contains(key) ? fields.at(key) : Json();
}

bool is_data(const Setting& setting) { return std::string_view(setting.name) == "train-data-hash"; }

// A name may be that of a folder, which may have been moved: the hash decides where there is one.
bool is_name_of_hashed_data(const Setting& setting, const Json& saved) {
  return std::string_view(setting.name) == "data" && !value_at(saved, "train_data_hash").is_null();
}

// The optimizer has a momentum buffer or none: its state cannot change that.
bool turns_momentum(const Setting& setting, const Json& saved, const Json& planned) {
  return std::string_view(setting.name) == "momentum" && (saved == 0) != (planned == 0);
}

OnResume rule_of(const Setting& setting, const Json& saved, const Json& planned) {
  return turns_momentum(setting, saved, planned) ? OnResume::kRefused : setting.on_resume;
}

void refuse(const Setting& setting, const Json& saved, const Json& planned) {
  std::string hint = is_data(setting) ? "train on the same data (--data), or start a new run"
                                      : "give the flags that the run was started with";
  if (turns_momentum(setting, saved, planned)) {
    hint += ", or start a new run: momentum cannot be turned on or off";
  } else if (setting.on_resume == OnResume::kRefusedUnnamed) {
    hint += fmt::format(", or change it from here on with --resume-anyway {}", setting.name);
  }
  throw WeightsError(
      fmt::format("the checkpoint's run has {} {}, this one has {}", key_in_words(key_of(setting)),
                  value_in_words(saved), value_in_words(planned)),
      hint);
}

// Returns true if the rates of these settings depend on the length of the run, or are not known.
bool rates_span_run(const Json& planned) {
  const auto schedule = value_at(planned, "schedule");
  return std::ranges::none_of(kScheduleNames, [&](const auto& choice) {
    return schedule == choice.name && !spans_run(choice.value);
  });
}

// Returns true if --resume-anyway, or the schedule, allows another value.
bool may_differ(const Setting& setting, const Json& planned, std::span<const std::string> anyway) {
  if (std::string_view(setting.name) == "epochs" && !rates_span_run(planned)) return true;
  return std::find(anyway.begin(), anyway.end(), setting.name) != anyway.end();
}

// Returns true for a value that another schedule has of itself. Earlier versions have none.
bool brings_its_own(const Json& saved, const Json& planned, const Json& before, const Json& now) {
  return before.is_null() || now.is_null() || value_at(saved, "schedule") != value_at(planned, "schedule");
}

// Returns true for another schedule that has no warm-up epochs. Its own change is allowed or refused as such.
bool rises_by_itself(const Json& saved, const Json& planned) {
  const auto now = value_at(planned, "schedule");
  return now == name_of(kScheduleNames, Schedule::kOneCycle) && now != value_at(saved, "schedule");
}

bool other_batch_size(const Json& saved, const Json& planned) {
  return value_at(saved, "batch_size") != value_at(planned, "batch_size");
}

}  // namespace

void take_batch_and_rate(const Json& saved, TrainFlags& flags) {
  if (const auto batch = value_at(saved, "batch_size"); !flags.batch_size && batch.is_number_integer()) {
    flags.batch_size = batch.get<int64_t>();
  }
  if (const auto lr = value_at(saved, "lr"); !flags.lr && lr.is_number()) flags.lr = lr.get<double>();
}

void check_same_run(const Json& saved, const Json& planned, std::span<const std::string> anyway) {
  // First what no flag can allow: its hint must not lead to a second refusal.
  for (const auto refused : {OnResume::kRefused, OnResume::kRefusedUnnamed}) {
    for (const auto& setting : all_settings()) {
      const auto key = key_of(setting);
      const auto before = value_at(saved, key), now = value_at(planned, key);
      if (before == now || rule_of(setting, before, now) != refused) continue;
      if (is_data(setting) && before.is_null()) continue;  // checkpoints of earlier versions have no hash
      if (is_name_of_hashed_data(setting, saved)) continue;
      if (setting.of_schedule && brings_its_own(saved, planned, before, now)) continue;
      if (std::string_view(setting.name) == "warmup-epochs" && rises_by_itself(saved, planned)) continue;
      if (refused == OnResume::kRefused || !may_differ(setting, planned, anyway))
        refuse(setting, before, now);
    }
  }
}

bool rescale_steps(RunState& state, const Json& planned) {
  if (!other_batch_size(state.plan, planned)) return false;
  if (state.position.step != 0) {
    throw WeightsError(
        fmt::format(
            "the checkpoint is of step {} of epoch {}, batches of {} instead of {} begin with an epoch",
            state.position.step, state.position.epoch, value_in_words(value_at(planned, "batch_size")),
            value_in_words(value_at(state.plan, "batch_size"))),
        "go on from a checkpoint at an epoch's end, which --checkpoint-every 1epoch writes");
  }
  state.trainer.steps = (state.position.epoch - 1) * planned.at("steps_per_epoch").get<int64_t>();
  state.position.left_out.clear();  // counted in the old steps, and all of them are done
  return true;
}

Json changed_settings(const Json& saved, const Json& planned) {
  auto changed = Json::object();
  for (const auto& setting : all_settings()) {
    const auto key = key_of(setting);
    if (setting.is_fact || !planned.contains(key)) continue;
    const auto before = value_at(saved, key);
    if (before.is_null()) continue;  // earlier versions do not have all
    if (const auto& now = planned.at(key); before != now) changed[key] = now;
  }
  return changed;
}

bool same_test_settings(const Json& changed) {
  return std::ranges::none_of(kTestSettings, [&](const char* key) { return changed.contains(key); });
}

Json with_test_settings_of(const Json& saved, Json planned) {
  for (const auto* key : kTestSettings) {
    if (auto value = value_at(saved, key); !value.is_null()) planned[key] = std::move(value);
  }
  return planned;
}

std::string rewritten_files(const Json& saved, const Json& planned) {
  const auto before = value_at(saved, "train_data_times"), now = value_at(planned, "train_data_times");
  if (before.is_null() || now.is_null() || before == now) return {};
  return "image files for training have been written, or copied, since the run has read them: names and "
         "sizes "
         "are the same, and other pixels would make it another run";
}

std::vector<std::string> bit_differences(const RunState& state, const Json& planned) {
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& key, const Json& before, const Json& now) {
    if (before == now) return;
    differences.push_back(
        fmt::format("{} {} instead of {}", key_in_words(key), value_in_words(now), value_in_words(before)));
  };
  const bool invariant = value_at(planned, "invariant") == true;  // the same bits on any number of replicas
  // The rows of each replica.
  const bool same_rows = !other_batch_size(state.plan, planned) &&
                         value_at(state.plan, "devices").size() == value_at(planned, "devices").size();
  for (const auto& setting : all_settings()) {
    const auto key = key_of(setting);
    if (setting.on_resume != OnResume::kChangesBits || (key == "split" && !same_rows)) continue;
    compare(key, value_at(state.plan, key), value_at(planned, key));
  }
  if (!invariant) compare("devices", value_at(state.plan, "devices"), value_at(planned, "devices"));
  const auto here = environment_json();
  const auto& there = state.environment;
  compare("instructions", value_at(there, "instructions"), value_at(here, "instructions"));
  compare("libraries", value_at(there, "libraries"), value_at(here, "libraries"));
  return differences;
}

}  // namespace lockstep
