#include <lockstep/parallel/training/shared_options.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {

std::vector<std::string> shared_option_lines(const TrainerOptions& options) {
  const auto& replica = options.replica;
  const auto& lr = options.lr;
  const auto& optimizer = replica.optimizer;
  std::vector<std::string> lines;
  const auto add = [&](const char* name, const auto& value) {
    lines.push_back(fmt::format("{} {}", name, value));
  };
  add("seed", options.seed);
  add("optimizer", name_of(kOptimizerNames, optimizer.kind));
  add("momentum", optimizer.momentum);
  add("nesterov", optimizer.nesterov);
  add("weight_decay", optimizer.weight_decay);
  add("beta1", optimizer.beta1);
  add("beta2", optimizer.beta2);
  add("epsilon", optimizer.epsilon);
  add("lr_function", lr.function ? "given" : "none");
  add("group", optimizer.group ? "a function" : "none");
  add("factory", optimizer.factory ? "a function" : "none");
  add("schedule", name_of(kScheduleNames, lr.schedule));
  add("lr", lr.lr);
  add("total_steps", lr.total_steps);
  add("warmup_steps", lr.warmup_steps);
  add("pct_start", lr.one_cycle.pct_start);
  add("div_factor", lr.one_cycle.div_factor);
  add("final_div_factor", lr.one_cycle.final_div_factor);
  add("anneal", lr.one_cycle.anneal == Anneal::kLinear ? "linear" : "cosine");
  add("gamma", lr.exponential.gamma);
  add("every", lr.exponential.every);
  add("factor", lr.plateau.factor);
  add("patience", lr.plateau.patience);
  add("threshold", lr.plateau.threshold);
  add("clip_norm", replica.clip_norm);
  add("ema", options.ema);
  add("shard", name_of(kShardNames, options.shard));
  add("precision", name_of(kPrecisionNames, replica.precision));
  add("loss_scale", replica.loss_scale.initial);
  add("growth_interval", replica.loss_scale.growth_interval);
  add("invariant", replica.invariant);
  add("accumulate", options.accumulate);
  add("split", options.split.empty() ? "even" : fmt::format("{}", fmt::join(options.split, ":")));
  add("auto_split", options.auto_split);
  add("bn", name_of(kBnPolicyNames, options.bn));
  add("check_sync", options.check_sync);
  return lines;
}

}  // namespace lockstep
