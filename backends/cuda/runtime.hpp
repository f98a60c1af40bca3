// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_RUNTIME_HPP
#define KFUSE_BACKENDS_CUDA_RUNTIME_HPP

#include <kfuse/backends/gpu/handle.hpp>

#include <Kokkos_Core.hpp>

#include <cuda_runtime_api.h>

namespace kfuse::cuda {

// The CUDA runtime under the names that backends/gpu has for it.
struct Runtime {
  static constexpr char const* name = "CUDA";
  using Status = cudaError_t;
  using Space = Kokkos::Cuda;
  static auto stream(Space const& space) { return space.cuda_stream(); }
  static Status set_device(Space const& space) { return cudaSetDevice(space.cuda_device()); }

  static constexpr auto success = cudaSuccess;
  static constexpr auto last_error = &cudaGetLastError;
  static constexpr auto error_text = &cudaGetErrorString;
  static constexpr auto memory = &cudaMemGetInfo;

  using Event = cudaEvent_t;
  static Status create_event(Event* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
  static constexpr auto destroy_event = &cudaEventDestroy;
  static constexpr auto record = &cudaEventRecord;
  static constexpr auto wait = &cudaEventSynchronize;
  static constexpr auto elapsed = &cudaEventElapsedTime;

  using Stream = cudaStream_t;
  static Status create_stream(Stream* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking); }
  static constexpr auto destroy_stream = &cudaStreamDestroy;
  static constexpr auto synchronize = &cudaStreamSynchronize;
  static Status begin_capture(Stream stream) { return cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed); }
  static constexpr auto end_capture = &cudaStreamEndCapture;
  static Status is_captured(Stream stream, bool* captured) {
    auto status = cudaStreamCaptureStatusNone;
    auto const result = cudaStreamIsCapturing(stream, &status);
    *captured = status != cudaStreamCaptureStatusNone;
    return result;
  }

  using Graph = cudaGraph_t;
  using GraphExec = cudaGraphExec_t;
  static constexpr auto destroy_graph = &cudaGraphDestroy;
  static constexpr auto destroy_exec = &cudaGraphExecDestroy;
  static Status instantiate(GraphExec* exec, Graph graph) { return cudaGraphInstantiate(exec, graph, 0); }
  static constexpr auto upload = &cudaGraphUpload;
  static constexpr auto launch = &cudaGraphLaunch;

  using Node = cudaGraphNode_t;
  using NodeType = cudaGraphNodeType;
  static constexpr auto type_kernel = cudaGraphNodeTypeKernel;
  static constexpr auto type_graph = cudaGraphNodeTypeGraph;
  static constexpr auto type_empty = cudaGraphNodeTypeEmpty;
  static constexpr auto get_nodes = &cudaGraphGetNodes;
  static constexpr auto get_type = &cudaGraphNodeGetType;
  static constexpr auto get_child = &cudaGraphChildGraphNodeGetGraph;
};

inline void check_status(cudaError_t status, char const* what) {
  gpu::check_status<Runtime>(status, what);
}

}  // namespace kfuse::cuda

#endif
