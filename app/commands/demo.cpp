#include <lockstep/app/commands/demo.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>

#include <memory>
#include <span>
#include <vector>

#include <lockstep/app/commands/demo_gluon.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/models/lenet.h>
#include <lockstep/parallel/allreduce.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

// Prints a vector on one line and a matrix row by row: "[1 1] on cuda:0".
std::string show(const torch::Tensor& tensor) {
  const auto rows = tensor.detach().cpu().to(torch::kFloat64).view({-1, tensor.size(-1)});  // (rows, columns)
  std::vector<std::string> lines;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const auto row = rows[i].contiguous();
    lines.push_back(fmt::format(
        "[{:>2}]",
        fmt::join(std::span(row.const_data_ptr<double>(), static_cast<size_t>(row.numel())), " ")));
  }
  return fmt::format("  {} on {}\n", fmt::join(lines, "\n  "), tensor.device().str());
}

// Copies the network's parameters to a device; their gradients are zero.
std::string show_get_params(torch::Device device) {
  const auto params = get_params(LeNet(/*seed=*/0)->parameters(), device);
  return fmt::format("get_params: the network's parameters copied to {}\nb1 weight:\n{}b1 grad:\n{}",
                     device.str(), show(params[1]), show(params[1].grad()));
}

// Device i starts with a vector of i + 1. At the end all devices hold the sum.
std::string show_allreduce(const std::vector<torch::Device>& devices) {
  std::vector<torch::Tensor> data;
  for (size_t i = 0; i < devices.size(); ++i) {
    data.push_back(torch::ones({1, 2}, devices[i]) * static_cast<int64_t>(i + 1));
  }
  std::string text = "before allreduce:\n";
  for (const auto& tensor : data) text += show(tensor);
  allreduce(data);
  text += "after allreduce:\n";
  for (const auto& tensor : data) text += show(tensor);
  return text;
}

// Splits a 4 x 5 matrix into one shard per device.
std::string show_split_batch(const std::vector<torch::Device>& devices) {
  const auto X = torch::arange(20).view({4, 5});
  const auto y = torch::arange(4);
  auto text = fmt::format("split_batch: input\n{}over {}\n", show(X), to_string(devices));
  for (const auto& shard : split_batch(X, y, devices)) {
    const auto rows = shard.rows();
    text += rows == 0 ? fmt::format("output: no rows on {}\n", shard.input().device().str())
                      : fmt::format("output: {}\n{}", counted(rows, "row"), show(shard.input()));
  }
  return text;
}

}  // namespace

void setup_demo(CLI::App& app) {
  auto* demo = app.add_subcommand("demo", "The chapters' small demonstrations");
  auto* scratch = demo->add_subcommand(
      "scratch", "get_params, allreduce and split_batch, as the from-scratch chapter shows them");
  auto options = std::make_shared<DemoScratchOptions>();
  scratch->add_option("--devices", options->devices, "As for train; the chapter uses two, try cpux2")
      ->type_name("LIST");
  scratch->callback([options] {
    refuse_several_processes("demo scratch");
    run_demo_scratch(*options);
  });

  auto* gluon = demo->add_subcommand("gluon", "Parameters on several devices, as the Gluon tab shows them");
  auto devices = std::make_shared<std::string>("auto");
  gluon->add_option("--devices", *devices, "As for train; the chapter uses two, try cpux2")
      ->type_name("LIST");
  gluon->callback([devices] {
    refuse_several_processes("demo gluon");
    run_demo_gluon(*devices);
  });
}

void run_demo_scratch(const DemoScratchOptions& options) {
  const auto devices = usable_devices(options.devices);
  write_stdout(show_get_params(devices.front()) + "\n");
  write_stdout(show_allreduce(devices) + "\n");
  write_stdout(show_split_batch(devices));
}

}  // namespace lockstep
