// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_RUNTIME_HPP
#define KFUSE_BACKENDS_HIP_RUNTIME_HPP

#include <kfuse/backends/gpu/handle.hpp>

#include <Kokkos_Core.hpp>

#include <hip/hip_runtime_api.h>

namespace kfuse::hip {

// The HIP runtime under the names that backends/gpu has for it.
struct Runtime {
  static constexpr char const* name = "HIP";
  using Status = hipError_t;
  using Space = Kokkos::HIP;
  static auto stream(Space const& space) { return space.hip_stream(); }
  static Status set_device(Space const& space) { return hipSetDevice(space.hip_device()); }

  static constexpr auto success = hipSuccess;
  static constexpr auto last_error = &hipGetLastError;
  static constexpr auto error_text = &hipGetErrorString;
  static constexpr auto memory = &hipMemGetInfo;

  using Event = hipEvent_t;
  static Status create_event(Event* event) { return hipEventCreateWithFlags(event, hipEventDefault); }
  static constexpr auto destroy_event = &hipEventDestroy;
  static constexpr auto record = &hipEventRecord;
  static constexpr auto wait = &hipEventSynchronize;
  static constexpr auto elapsed = &hipEventElapsedTime;

  using Stream = hipStream_t;
  static Status create_stream(Stream* stream) { return hipStreamCreateWithFlags(stream, hipStreamNonBlocking); }
  static constexpr auto destroy_stream = &hipStreamDestroy;
  static constexpr auto synchronize = &hipStreamSynchronize;
  static Status begin_capture(Stream stream) { return hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed); }
  static constexpr auto end_capture = &hipStreamEndCapture;
  static Status is_captured(Stream stream, bool* captured) {
    auto status = hipStreamCaptureStatusNone;
    auto const result = hipStreamIsCapturing(stream, &status);
    *captured = status != hipStreamCaptureStatusNone;
    return result;
  }

  using Graph = hipGraph_t;
  using GraphExec = hipGraphExec_t;
  static constexpr auto destroy_graph = &hipGraphDestroy;
  static constexpr auto destroy_exec = &hipGraphExecDestroy;
  static Status instantiate(GraphExec* exec, Graph graph) { return hipGraphInstantiateWithFlags(exec, graph, 0); }
  static constexpr auto upload = &hipGraphUpload;
  static constexpr auto launch = &hipGraphLaunch;

  using Node = hipGraphNode_t;
  using NodeType = hipGraphNodeType;
  static constexpr auto type_kernel = hipGraphNodeTypeKernel;
  static constexpr auto type_graph = hipGraphNodeTypeGraph;
  static constexpr auto type_empty = hipGraphNodeTypeEmpty;
  static constexpr auto get_nodes = &hipGraphGetNodes;
  static constexpr auto get_type = &hipGraphNodeGetType;
  static constexpr auto get_child = &hipGraphChildGraphNodeGetGraph;
};

inline void check_status(hipError_t status, char const* what) {
  gpu::check_status<Runtime>(status, what);
}

}  // namespace kfuse::hip

#endif
