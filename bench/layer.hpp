// SPDX-License-Identifier: Apache-2.0
// One transformer layer, or several of the same shape with weights of their own, as a case.
#ifndef KFUSE_BENCH_LAYER_HPP
#define KFUSE_BENCH_LAYER_HPP

#include <kfuse/models/layer_config.hpp>
#include <kfuse/models/safetensors.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench.hpp"
#include "prepare.hpp"

namespace bench {

struct LayerRequest {
  std::string model, phase;
  kfuse::LayerConfig config;
  int batch = 1;
  int sequence = 1;    // tokens that pass through the layer at once, of each sequence
  int context = 1024;  // keys that the last of them sees, itself included
  int layers = 1;
  std::shared_ptr<kfuse::Safetensors const> weights;  // none: random ones
  int layer_index = 0;                                // of the first layer in that file

  std::string work() const { return "layer/" + model + "/" + phase; }
  std::vector<std::pair<std::string, int>> shape() const {
    return {{"batch", batch},
            {"sequence", sequence},
            {"context", context},
            {"layers", layers},
            {"hidden", config.hidden},
            {"heads", config.heads},
            {"kv_heads", config.kv_heads},
            {"head_dim", config.head_dim},
            {"intermediate", config.intermediate}};
  }
};

// Compiled in one file for each element type, because layers take long to compile.
template <class Element>
struct LayerMaker {
  static Case<DeviceSpace> on_device(Memory<DeviceSpace>& memory, LayerRequest const& request);
  static Case<HostSpace> on_host(Memory<HostSpace>& memory, LayerRequest const& request);
};
extern template struct LayerMaker<double>;
extern template struct LayerMaker<float>;
extern template struct LayerMaker<kfuse::bf16>;
extern template struct LayerMaker<kfuse::fp16>;

template <class Space>
Job<Space> layer_job(LayerRequest const& request, kfuse::ElementType type) {
  auto const make = [request, type](Memory<Space>& memory) {
    return with_element(type, [&]<class Element>(std::type_identity<Element>) {
      if constexpr (std::is_same_v<Space, DeviceSpace>)
        return LayerMaker<Element>::on_device(memory, request);
      else
        return LayerMaker<Element>::on_host(memory, request);
    });
  };
  return {request.work(), type, request.shape(), make};
}

}  // namespace bench

#endif
