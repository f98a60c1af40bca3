// SPDX-License-Identifier: Apache-2.0
// kfuse-bench: what fusing and replaying bring, checked and then measured. Results go to stdout, all else to stderr.
// Exit codes: 0 done; 1 the device or the program failed; 2 the command line, a file or the memory is to blame; 3 a
// result is wrong.
#include <kfuse/core/check.hpp>

#include <CLI/CLI.hpp>

#include <exception>
#include <string>

#include "commands.hpp"
#include <fmt/format.h>

namespace {

using bench::Options;

void add_common(CLI::App& command, Options& options) {
  command.add_option("--element", options.element, "fp64, fp32, bf16 or fp16")->capture_default_str();
  command.add_option("--space", options.space, "cuda, hip or host; by itself the best of this build");
}
void add_layer(CLI::App& command, Options& options) {
  command.add_option("--model", options.model, "a preset, or a config.json or its folder; by itself llama-3.2-1b");
  command.add_option("--phase", options.phase, "decode or prefill; by itself decode");
  command.add_option("--batch", options.sizes["batch"], "sequences; by itself 1");
  command.add_option("--sequence", options.sizes["sequence"], "tokens at once; by itself 1, or 2048 in prefill");
  command.add_option("--context", options.sizes["context"], "keys the last token sees; by itself 1024, or --sequence");
}
// Those of all operators; which of them an operator has is looked at later.
void add_sizes(CLI::App& command, Options& options) {
  for (auto const& entry : bench::registry())
    for (auto const& [name, value] : entry.sizes)
      if (command.get_option_no_throw(bench::flag_of(name)) == nullptr)
        command.add_option(bench::flag_of(name), options.sizes[name], "a size; see kfuse-bench list");
}
void add_measure(CLI::App& command, Options& options) {
  command.add_option("--modes", options.modes, "of eager, fused and replay, with commas; by itself all");
  command.add_option("--repeats", options.repeats, "by itself 50, or as many as take two seconds");
  command.add_option("--cadence", options.cadence, "cold: the cache is emptied before each; or back-to-back")
      ->capture_default_str();
  command.add_flag("--no-check", options.no_check, "time without looking at results");
  command.add_option("--json", options.json, "a file for the results");
  command.add_option("--spoil", options.spoiled, "a mode whose result is made wrong before the check")->group("");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{"Checks and times fused transformer operators and layers: eager, fused, and replayed.", "kfuse-bench"};
  app.set_version_flag("--version", KFUSE_VERSION);
  app.require_subcommand(1);
  int code = bench::success;

  auto* layer = app.add_subcommand("layer", "One transformer layer, eager, fused and replayed");
  add_common(*layer, options);
  add_layer(*layer, options);
  layer->add_option("--layers", options.layers, "so many in a row, with weights of their own; figures are for one");
  layer->add_option("--weights", options.weights, "a safetensors file; by itself random weights");
  layer->add_option("--layer-index", options.layer_index, "of the (first) layer in --weights; by itself 0");
  add_measure(*layer, options);
  layer->callback([&] { code = bench::layer(options); });

  auto* op = app.add_subcommand("op", "One or more operators");
  op->add_option("op", options.ops, "names; see kfuse-bench list");
  op->add_flag("--all", options.all,
               "all, or those named, at every shape they have a bar for; one table with verdicts");
  op->add_option("--calls", options.calls, "so many in a row, each on memory of its own; figures are for one");
  add_common(*op, options);
  add_sizes(*op, options);
  add_measure(*op, options);
  op->callback([&] { code = bench::op(options); });

  auto* explain = app.add_subcommand("explain", "What operators or a layer launch and move, and what bounds them");
  explain->add_option("op", options.ops, "names; by itself a layer");
  explain->add_flag("--all", options.all, "all operators, or those named, at every shape they have a bar for");
  add_common(*explain, options);
  add_layer(*explain, options);
  add_sizes(*explain, options);
  explain->callback([&] { code = bench::explain(options); });

  auto* device = app.add_subcommand("device", "What the device is, and how fast it copies and multiplies");
  device->add_option("--space", options.space, "cuda, hip or host; by itself the best of this build");
  device->callback([&] { code = bench::device(options); });

  app.add_subcommand("list", "Layers, element types, spaces and operators")->callback([&] { code = bench::list(); });

  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& problem) {
    if (problem.get_exit_code() == int(CLI::ExitCodes::Success)) return app.exit(problem);
    throw bench::UsageError(problem.what());
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (bench::UsageError const& problem) {
    fmt::print(stderr, "kfuse-bench: {}\n", problem.what());
    return bench::usage_error;
  } catch (kfuse::Error const& problem) {
    fmt::print(stderr, "kfuse-bench: {}\n", problem.what());
    return bench::usage_error;
  } catch (std::exception const& problem) {
    fmt::print(stderr, "kfuse-bench: failed: {}\n", problem.what());
    return bench::failure;
  }
}
