// The checks that a run must pass to go on from a checkpoint.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/train/checkpoint/contents.h>
#include <lockstep/app/train/plan/flags.h>

namespace lockstep {

// Batch size and rate of a run that goes on are the checkpoint's, unless flags give them: the recipe's depend
// on the number of devices.
void take_batch_and_rate(const nlohmann::ordered_json& saved, TrainFlags& flags);

// saved, planned: plan_fields() (app/train/settings/settings.h) of the checkpoint's run and of this one.
// Throws WeightsError for the first setting that changes the training, with both values, unless `anyway`
// names it.
void check_same_run(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& planned,
                    std::span<const std::string> anyway);

// Returns whether the planned batch size differs from the checkpoint's. If so, sets the state's steps to
// those that its finished epochs take with the planned size. Throws WeightsError if so and the checkpoint is
// from the middle of an epoch.
bool rescale_steps(RunState& state, const nlohmann::ordered_json& planned);

// Settings of the checkpoint's run that have another value in this one: this one's values, by key.
nlohmann::ordered_json changed_settings(const nlohmann::ordered_json& saved,
                                        const nlohmann::ordered_json& planned);

// Returns true if accuracy and time of the checkpoint's run are those of this one, too: devices and test
// images are the same. changed: of changed_settings().
bool same_test_settings(const nlohmann::ordered_json& changed);

// Returns `planned` with the devices and test images with which the checkpoint's accuracy and time were
// measured.
nlohmann::ordered_json with_test_settings_of(const nlohmann::ordered_json& saved,
                                             nlohmann::ordered_json planned);

// Returns a sentence for a run whose image files for training have been written since the checkpoint's run
// has read them; empty: they have not, or nobody knows. Their names and sizes are the same: check_same_run().
std::string rewritten_files(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& planned);

// Returns the differences by which the next steps give other bits than without the break: "threads 1 instead
// of 2". state: of the checkpoint. planned: plan_fields() of this run.
std::vector<std::string> bit_differences(const RunState& state, const nlohmann::ordered_json& planned);

}  // namespace lockstep
