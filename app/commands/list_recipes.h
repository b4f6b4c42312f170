// `lockstep recipes`: the named sets of values, and what the chapters report for them.
#pragma once

namespace CLI {
class App;
}

namespace lockstep {

// With --json it prints {"recipes": [...]}. Each recipe has "name", "description", "reported" (text or null),
// "model", "initialization", "epochs", "batch_size", "lr", "adamw_lr", "per_device" (whether batch and rates
// are multiplied by the number of devices), "momentum", "weight_decay", "schedule" and "warmup_epochs".
void setup_recipes(CLI::App& app);

}  // namespace lockstep
