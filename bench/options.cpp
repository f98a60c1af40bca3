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
constexpr int most_calls = 4096;  // each has memory and a place in the graph

int number_or(std::string const& flag, Given const& text, int otherwise, int lowest = 1) {
  return text ? whole_number(flag, *text, lowest, most) : otherwise;
}

// Rows are counted by an int, and layers have a row for each token, or each head and token.
void check_rows(LayerRequest const& request) {
  double const rows = double(request.batch) * request.sequence * std::max(1, request.config.heads);
  if (rows > most) throw UsageError("--batch, --sequence: more than 2^31 - 1 tokens times heads; make them smaller");
}

// Those named, in that order, or all, by their names.
std::vector<Entry> entries_asked(Options const& options) {
  std::vector<Entry> entries = registry();
  std::sort(entries.begin(), entries.end(), [](Entry const& a, Entry const& b) { return a.name < b.name; });
  if (options.ops.empty()) return entries;
  std::vector<std::string> names;
  for (auto const& entry : entries) names.push_back(entry.name);
  std::vector<Entry> result;
  for (auto const& name : options.ops) {
    one_of("op", name, names);
    result.push_back(*std::find_if(entries.begin(), entries.end(), [&](Entry const& e) { return e.name == name; }));
  }
  return result;
}

// With --all a size is for the operators that have it; otherwise for each of them.
void check_sizes(Options const& options, std::vector<Entry> const& entries) {
  for (auto const& [size, text] : options.sizes) {
    if (!text) continue;
    auto const has_it = [&name = size](Entry const& entry) { return entry.sizes.has(name); };
    auto const without = std::find_if_not(entries.begin(), entries.end(), has_it);
    if (without == entries.end()) continue;
    if (options.all && std::any_of(entries.begin(), entries.end(), has_it)) continue;
    std::vector<std::string> known;
    for (auto const& each : without->sizes) known.push_back(flag_of(each.first));
    throw UsageError(flag_of(size) + ": " + without->name + " has no such size; it has " + listed(known));
  }
}

// An operator at the sizes of a bar and those of the command line, which come first. The bar found is for exactly them.
OpRequest op_request(Options const& options, Entry const& entry, Bar const& at, kfuse::ElementType type) {
  int const calls = options.calls ? whole_number("--calls", *options.calls, 1, most_calls) : at.calls;
  OpRequest request{entry, entry.sizes_of(at), calls, {}};
  for (auto const& [size, text] : options.sizes)
    if (text && request.sizes.has(size)) request.sizes.set(size, whole_number(flag_of(size), *text, 1, most));
  for (Bar const& bar : entry.bars)
    if (entry.sizes_of(bar) == request.sizes && bar.calls == request.calls) request.bar = bar_in(type, bar);
  return request;
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

std::vector<OpRequest> ops_asked(Options const& options) {
  bool const of_layer = options.ops.empty() && !options.all;
  if (!of_layer && options.model) throw UsageError("--model: belongs to a layer, not to an operator");
  if (!of_layer && options.phase) throw UsageError("--phase: belongs to a layer, not to an operator");
  if (of_layer) return {};
  auto const entries = entries_asked(options);
  check_sizes(options, entries);
  auto const type = element_asked(options);
  std::vector<OpRequest> result;
  for (Entry const& entry : entries) {
    bool const at_bars = options.all && !entry.bars.empty();
    for (Bar const& at : at_bars ? entry.bars : std::vector{Bar{}}) {
      OpRequest const request = op_request(options, entry, at, type);
      bool const known = std::any_of(result.begin(), result.end(), [&](OpRequest const& r) {
        return r.entry.name == entry.name && r.sizes == request.sizes && r.calls == request.calls;
      });
      if (!known) result.push_back(request);
    }
  }
  return result;
}

}  // namespace bench
