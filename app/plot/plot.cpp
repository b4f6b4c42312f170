#include <lockstep/app/plot/plot.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/plot/figures/figures.h>
#include <lockstep/app/plot/figures/source.h>
#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

std::string output_of(const PlotOptions& options) {
  if (options.output) return *options.output;
  const auto& first = options.files.front();
  std::error_code ignored;
  if (std::filesystem::is_directory(first, ignored)) return plot::last_name(first) + ".svg";
  return std::filesystem::path(first).filename().replace_extension(".svg").string();
}

plot::PictureFormat format_of(const std::string& output) {
  const auto ending = std::filesystem::path(output).extension();
  if (ending == ".svg") return plot::PictureFormat::kSvg;
  if (ending == ".png") return plot::PictureFormat::kPng;
  throw UsageError(fmt::format("--output must end in .svg or .png, got {}", in_quotes(output)),
                   "see 'lockstep plot --help'");
}

}  // namespace

void setup_plot(CLI::App& app) {
  auto* plot = app.add_subcommand("plot", "Draw the files that train, eval, bench and sweep write");
  auto options = std::make_shared<PlotOptions>();
  plot->add_option("FILE", options->files,
                   "Folders of runs, or files of train --metrics, eval --confusion --json, bench --json or "
                   "sweep; several of one kind share a picture")
      ->required()
      ->default_str("");
  plot->add_option(
          "--output", options->output,
          "Picture to write, ending in .svg or .png (default: the first file's name with .svg, in the "
          "current folder)")
      ->type_name("FILE");
  plot->add_flag("--overwrite", options->overwrite, "Replace existing output files");
  plot->callback([options] {
    refuse_several_processes("plot");
    run_plot(*options);
  });
}

void run_plot(const PlotOptions& options) {
  const auto output = output_of(options);
  const auto format = format_of(output);
  std::vector<FileFlag> inputs;
  for (const auto& file : options.files) inputs.push_back({"FILE", file});
  check_distinct_files({{"--output", output}}, inputs);
  std::vector<plot::Source> sources;
  for (const auto& file : options.files) sources.push_back(plot::read_source(file));
  for (const auto& source : sources) {
    if (!source.cut_short) continue;
    warn(fmt::format(
        "the last line of {} is incomplete (its run is still writing or was killed) and is left out",
        in_quotes(source.path)));
  }
  const auto figure = plot::figure_of(std::move(sources));
  AtomicFile file(output, options.overwrite);  // refuses a file that exists before anything is drawn
  const auto picture = plot::draw(figure, format);
  file.write(picture);
  file.commit();
  write_stdout(fmt::format("{}: {}\n", output, figure.summary));
}

}  // namespace lockstep
