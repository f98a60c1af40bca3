// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: what a stream is given, recorded by stream capture and replayed in one launch.
#ifndef KFUSE_BACKENDS_CUDA_GRAPH_HPP
#define KFUSE_BACKENDS_CUDA_GRAPH_HPP

#include <kfuse/backends/cuda/device.hpp>

#include <Kokkos_Core.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace kfuse::cuda {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
template <class Handle, auto destroy>
using Unique = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

using UniqueStream = Unique<cudaStream_t, &cudaStreamDestroy>;
using UniqueGraph = Unique<cudaGraph_t, &cudaGraphDestroy>;
using UniqueGraphExec = Unique<cudaGraphExec_t, &cudaGraphExecDestroy>;
// A recorded graph, ready to run. One that is dropped while it runs is kept by the driver until it is done.
class Graph {
 public:
  Graph(cudaGraph_t graph, cudaStream_t stream) : nodes_(count(graph)) {
    std::size_t const before = memory_free();
    cudaGraphExec_t exec = nullptr;
    check_status(cudaGraphInstantiate(&exec, graph, 0), "make the recorded graph executable");
    exec_.reset(exec);
    check_status(cudaGraphUpload(exec, stream), "bring the recorded graph to the device");
    check_status(cudaStreamSynchronize(stream), "bring the recorded graph to the device");
    std::size_t const after = memory_free();
    bytes_ = before > after ? before - after : 0;
  }

  void launch(Kokkos::Cuda const& space) const {
    check_status(cudaGraphLaunch(exec_.get(), space.cuda_stream()), "launch a graph");
  }
  int kernels() const { return nodes_.kernels; }
  // Kernels, copies, fills, and whatever else is work.
  int nodes() const { return nodes_.all; }
  // Device memory that was free before. The driver takes it in large pieces, so a small graph may need none.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Count {
    int kernels = 0, all = 0;
  };
  static Count count(cudaGraph_t graph) {
    std::size_t size = 0;
    check_status(cudaGraphGetNodes(graph, nullptr, &size), "count the nodes of a graph");
    std::vector<cudaGraphNode_t> nodes(size);
    if (size > 0) check_status(cudaGraphGetNodes(graph, nodes.data(), &size), "list the nodes of a graph");
    Count sum;
    for (cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type;
      check_status(cudaGraphNodeGetType(node, &type), "tell a graph node's type");
      if (type == cudaGraphNodeTypeGraph) {
        cudaGraph_t child = nullptr;
        check_status(cudaGraphChildGraphNodeGetGraph(node, &child), "look into a graph");
        Count const inside = count(child);
        sum.kernels += inside.kernels;
        sum.all += inside.all;
      } else if (type != cudaGraphNodeTypeEmpty) {
        sum.kernels += type == cudaGraphNodeTypeKernel;
        ++sum.all;
      }
    }
    return sum;
  }
  static std::size_t memory_free() {
    std::size_t free = 0, total = 0;
    check_status(cudaMemGetInfo(&free, &total), "tell how much memory is free");
    return free;
  }

  UniqueGraphExec exec_;
  Count nodes_;
  std::size_t bytes_ = 0;
};

// A stream that waits for no other, and the one Kokkos instance on it. What works on the instance can be recorded.
class Recorder {
 public:
  Recorder() : stream_(make_stream()), space_(stream_.get()) {}

  Kokkos::Cuda const& space() const { return space_; }

  // The graph of what work(space()) puts on the stream; nothing runs. Whatever is thrown meanwhile, the stream works as
  // before. The relaxed mode lets Kokkos ask for memory of no size at every launch.
  template <class Work>
  Graph record(Work const& work) const {
    check_status(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeRelaxed), "begin to record a stream");
    try {
      work(space_);
    } catch (...) {
      end();
      cudaGetLastError();  // what was refused while recording
      throw;
    }
    auto const [graph, status] = end();
    check_status(status, "record the stream: it was given what cannot be recorded");
    return Graph(graph.get(), stream_.get());
  }

 private:
  struct Recorded {
    UniqueGraph graph;
    cudaError_t status;
  };
  Recorded end() const {
    cudaGraph_t graph = nullptr;
    cudaError_t const status = cudaStreamEndCapture(stream_.get(), &graph);
    return {UniqueGraph(graph), status};
  }
  static cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    check_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
    return stream;
  }

  UniqueStream stream_;
  Kokkos::Cuda space_;  // goes before its stream
};

}  // namespace kfuse::cuda

#endif
