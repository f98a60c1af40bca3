// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <kfuse/core/check.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>

namespace bench {

namespace {

constexpr int most = std::numeric_limits<int>::max();

int number_or(std::string const& flag, Given const& text, int otherwise, int lowest = 1) {
  return text ? whole_number(flag, *text, lowest, most) : otherwise;
}

// Rows are counted by an int, and layers have a row for each token, or each head and token.
void check_rows(LayerRequest const& request) {
  double const rows = double(request.batch) * request.sequence * std::max(1, request.config.heads);
  if (rows > most) throw UsageError("--batch, --sequence: more than 2^31 - 1 tokens times heads; make them smaller");
}

}  // namespace

std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

kfuse::ElementType element_asked(Options const& options) {
  std::vector<std::string> names;
  for (auto type : element_types) names.push_back(kfuse::name(type));
  std::string const name = one_of("--element", options.element, names);
  return *std::find_if(element_types.begin(), element_types.end(),
                       [&](auto type) { return name == kfuse::name(type); });
}

MeasureOptions measure_asked(Options const& options) {
  std::vector<std::string> const modes{"eager", "fused", "replay"};
  MeasureOptions result;
  result.modes = options.modes ? some_of("--modes", *options.modes, modes) : modes;
  result.modes_given = options.modes.has_value();
  result.repeats = number_or("--repeats", options.repeats, 0);
  bool const cold = one_of("--cadence", options.cadence, {"cold", "back-to-back"}) == "cold";
  result.cadence = cold ? Cadence::cold : Cadence::back_to_back;
  result.check = !options.no_check;
  result.spoiled = options.spoiled;
  return result;
}

LayerRequest layer_asked(Options const& options) {
  LayerRequest request;
  for (auto const& [size, text] : options.sizes)
    if (text && size != "batch" && size != "sequence" && size != "context")
      throw UsageError(flag_of(size) + ": a layer has no such size; it has --batch, --sequence and --context");
  auto const& [batch, context, sequence] =
      std::tie(options.sizes.at("batch"), options.sizes.at("context"), options.sizes.at("sequence"));
  request.model = options.model.value_or("llama-3.2-1b");
  request.phase = one_of("--phase", options.phase.value_or("decode"), {"decode", "prefill"});
  bool const decode = request.phase == "decode";
  request.batch = number_or("--batch", batch, 1);
  request.sequence = number_or("--sequence", sequence, decode ? 1 : 2048);
  request.context = number_or("--context", context, decode ? std::max(1024, request.sequence) : request.sequence);
  request.layers = number_or("--layers", options.layers, 1);
  request.layer_index = number_or("--layer-index", options.layer_index, 0, 0);
  if (request.context < request.sequence)
    throw UsageError("--context: " + std::to_string(request.context) + " tokens cannot hold the " +
                     std::to_string(request.sequence) + " of --sequence, which are among them");
  if (options.layer_index && !options.weights)
    throw UsageError("--layer-index: chooses a layer of --weights, which is not given");
  request.config = kfuse::config_from(request.model);
  check_rows(request);
  if (options.weights) request.weights = std::make_shared<kfuse::Safetensors const>(*options.weights);
  return request;
}

std::vector<std::pair<Entry, Sizes>> ops_asked(Options const& options) {
  std::vector<std::string> names;
  for (auto const& entry : registry()) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  if (!options.ops.empty() && options.model) throw UsageError("--model: belongs to a layer, not to an operator");
  if (!options.ops.empty() && options.phase) throw UsageError("--phase: belongs to a layer, not to an operator");
  std::vector<std::pair<Entry, Sizes>> result;
  for (auto const& name : options.ops) {
    one_of("op", name, names);
    Entry const& entry = *std::find_if(registry().begin(), registry().end(), [&](auto& e) { return e.name == name; });
    Sizes sizes = entry.sizes;
    std::vector<std::string> known;
    for (auto const& size : sizes) known.push_back(flag_of(size.first));
    for (auto const& [size, text] : options.sizes) {
      if (!text) continue;
      if (!sizes.has(size))
        throw UsageError(flag_of(size) + ": " + name + " has no such size; it has " + listed(known));
      sizes.set(size, whole_number(flag_of(size), *text, 1, most));
    }
    result.emplace_back(entry, sizes);
  }
  return result;
}

}  // namespace bench
