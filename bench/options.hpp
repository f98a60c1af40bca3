// SPDX-License-Identifier: Apache-2.0
// The command line as it was typed, and what it asks for. All of it is read before anything is done.
#ifndef KFUSE_BENCH_OPTIONS_HPP
#define KFUSE_BENCH_OPTIONS_HPP

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"
#include "layer.hpp"
#include "measure.hpp"

namespace bench {

using Given = std::optional<std::string>;  // nothing, if the option is absent

struct Options {
  std::string space, element = "bf16", cadence = "cold";
  Given modes, repeats, json;
  std::string spoiled;
  bool no_check = false;

  Given model, phase, layers, weights, layer_index;  // of a layer
  std::vector<std::string> ops;
  std::map<std::string, Given> sizes{{"batch", {}}, {"sequence", {}}, {"context", {}}};  // of both, by name
};

// "kv_heads" is "--kv-heads" on the command line.
std::string flag_of(std::string name);

kfuse::ElementType element_asked(Options const& options);
MeasureOptions measure_asked(Options const& options);
LayerRequest layer_asked(Options const& options);
// The operators, each with its sizes.
std::vector<std::pair<Entry, Sizes>> ops_asked(Options const& options);

}  // namespace bench

#endif
