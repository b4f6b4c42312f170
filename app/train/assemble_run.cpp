#include <lockstep/app/train/assemble_run.h>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/json.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// The flags that were given, before process 0 completes its own. files: of what process 0 keeps.
Member given_files(const TrainFlags& options) {
  return {{"save", options.save.has_value()},
          {"metrics", options.metrics.has_value()},
          {"output", options.output.has_value()},
          {"trace", options.trace.has_value()},
          {"checkpoint-every", options.checkpoint_every.has_value()},
          {"resume", options.resume.has_value()}};
}

Member member_of(const TrainFlags& options, const World& place, Member files) {
  const std::vector<std::vector<torch::Device>> lists{
      usable_devices(local_spec(options.devices, place, visible_gpus()))};
  auto member = member_with(lists);
  member["log_every"] = options.log_every;
  member["print_weights_hash"] = options.print_weights_hash;
  member["checkpoint_every"] = or_null(options.checkpoint_every);
  member["resume"] = options.resume.has_value();
  member["files"] = files;
  member["batch_size"] = or_null(options.batch_size);
  member["lr"] = or_null(options.lr);
  return member;
}

// Process 0 writes the files. A flag that only another process has would have no effect.
void refuse_files_of_others(const std::vector<Member>& members) {
  for (const auto& [flag, first_has_it] : members.front().at("files").items()) {
    for (size_t process = 1; process < members.size(); ++process) {
      if (first_has_it.get<bool>() || !members[process].at("files").at(flag).get<bool>()) continue;
      throw UsageError(
          fmt::format("process {} has --{}, but process 0, which writes the files, does not have it", process,
                      flag),
          fmt::format("give --{} to process 0", flag));
    }
  }
}

// Tells the others that process 0 has a file. Its name is process 0's own affair.
std::optional<std::string> file_of_first(bool first_has_it) {
  return first_has_it ? std::optional<std::string>("process 0's") : std::nullopt;
}

void take_output_flags(const Member& first, TrainFlags& options) {
  options.log_every = first.at("log_every").get<int64_t>();
  options.print_weights_hash = first.at("print_weights_hash").get<bool>();
  options.save = file_of_first(first.at("files").at("save"));
  options.trace = file_of_first(first.at("files").at("trace"));
  options.resume = file_of_first(first.at("resume"));
  options.checkpoint_every.reset();
  if (const auto& every = first.at("checkpoint_every"); every.is_string()) {
    options.checkpoint_every = every.get<std::string>();
  }
  options.metrics.reset();
  options.quiet = true;
  if (!options.resume) return;  // else process 0 has values from the checkpoint
  if (!options.batch_size && !first.at("batch_size").is_null()) options.batch_size = first.at("batch_size");
  if (!options.lr && !first.at("lr").is_null()) options.lr = first.at("lr");
}

}  // namespace

void assemble_run(TrainWorld& world, TrainFlags& options, const std::function<void()>& check) {
  if (world.single_process()) return check();
  const auto files = given_files(options);
  const auto members = gather_members(world, [&] {
    check();
    return member_of(options, world.place, files);
  });
  take_list(members, 0, world);
  refuse_files_of_others(members);
  if (!world.leads()) take_output_flags(members.front(), options);
}

}  // namespace lockstep
