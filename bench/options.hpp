// SPDX-License-Identifier: Apache-2.0
// The command line as it was typed, and what it asks for. All of it is read before anything is done.
#ifndef KFUSE_BENCH_OPTIONS_HPP
#define KFUSE_BENCH_OPTIONS_HPP

#include <map>
#include <optional>
#include <string>
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
  bool all = false;  // operators at every shape that they have a bar for
  Given calls;
  std::map<std::string, Given> sizes{{"batch", {}}, {"sequence", {}}, {"context", {}}};  // of both, by name
};

// "kv_heads" is "--kv-heads" on the command line.
std::string flag_of(std::string name);

kfuse::ElementType element_asked(Options const& options);
MeasureOptions measure_asked(Options const& options);
LayerRequest layer_asked(Options const& options);

struct OpRequest {
  Entry entry;
  Sizes sizes;
  int calls = 1;
  std::optional<Bar> bar;  // for that, in the element type asked for
};
std::vector<OpRequest> ops_asked(Options const& options);  // none: a layer is asked for

}  // namespace bench

#endif
