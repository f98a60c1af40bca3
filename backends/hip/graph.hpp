// SPDX-License-Identifier: Apache-2.0
// HIP graphs: what a stream is given, recorded by stream capture and replayed in one launch.
#ifndef KFUSE_BACKENDS_HIP_GRAPH_HPP
#define KFUSE_BACKENDS_HIP_GRAPH_HPP

#include <kfuse/backends/hip/device.hpp>

#include <Kokkos_Core.hpp>

#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace kfuse::hip {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    (void)destroy(handle);
  }
};
template <class Handle, auto destroy>
using Unique = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

using UniqueStream = Unique<hipStream_t, &hipStreamDestroy>;
using UniqueGraph = Unique<hipGraph_t, &hipGraphDestroy>;
using UniqueGraphExec = Unique<hipGraphExec_t, &hipGraphExecDestroy>;
// A recorded graph, ready to run. One that is dropped while it runs is kept by the driver until it is done.
class Graph {
 public:
  Graph(hipGraph_t graph, hipStream_t stream) : nodes_(count(graph)) {
    std::size_t const before = memory_free();
    hipGraphExec_t exec = nullptr;
    check_status(hipGraphInstantiateWithFlags(&exec, graph, 0), "make the recorded graph executable");
    exec_.reset(exec);
    check_status(hipGraphUpload(exec, stream), "bring the recorded graph to the device");
    check_status(hipStreamSynchronize(stream), "bring the recorded graph to the device");
    std::size_t const after = memory_free();
    bytes_ = before > after ? before - after : 0;
  }

  void launch(Kokkos::HIP const& space) const {
    check_status(hipGraphLaunch(exec_.get(), space.hip_stream()), "launch a graph");
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
  static Count count(hipGraph_t graph) {
    std::size_t size = 0;
    check_status(hipGraphGetNodes(graph, nullptr, &size), "count the nodes of a graph");
    std::vector<hipGraphNode_t> nodes(size);
    if (size > 0) check_status(hipGraphGetNodes(graph, nodes.data(), &size), "list the nodes of a graph");
    Count sum;
    for (hipGraphNode_t node : nodes) {
      hipGraphNodeType type;
      check_status(hipGraphNodeGetType(node, &type), "tell a graph node's type");
      if (type == hipGraphNodeTypeGraph) {
        hipGraph_t child = nullptr;
        check_status(hipGraphChildGraphNodeGetGraph(node, &child), "look into a graph");
        Count const inside = count(child);
        sum.kernels += inside.kernels;
        sum.all += inside.all;
      } else if (type != hipGraphNodeTypeEmpty) {
        sum.kernels += type == hipGraphNodeTypeKernel;
        ++sum.all;
      }
    }
    return sum;
  }
  static std::size_t memory_free() {
    std::size_t free = 0, total = 0;
    check_status(hipMemGetInfo(&free, &total), "tell how much memory is free");
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

  Kokkos::HIP const& space() const { return space_; }

  // The graph of what work(space()) puts on the stream; nothing runs. Whatever is thrown meanwhile, the stream works as
  // before. The relaxed mode lets Kokkos ask for memory of no size at every launch.
  template <class Work>
  Graph record(Work const& work) const {
    check_status(hipStreamBeginCapture(stream_.get(), hipStreamCaptureModeRelaxed), "begin to record a stream");
    try {
      work(space_);
    } catch (...) {
      end();
      (void)hipGetLastError();  // what was refused while recording
      throw;
    }
    auto const [graph, status] = end();
    check_status(status, "record the stream: it was given what cannot be recorded");
    return Graph(graph.get(), stream_.get());
  }

 private:
  struct Recorded {
    UniqueGraph graph;
    hipError_t status;
  };
  Recorded end() const {
    hipGraph_t graph = nullptr;
    hipError_t const status = hipStreamEndCapture(stream_.get(), &graph);
    return {UniqueGraph(graph), status};
  }
  static hipStream_t make_stream() {
    hipStream_t stream = nullptr;
    check_status(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "make a stream");
    return stream;
  }

  UniqueStream stream_;
  Kokkos::HIP space_;  // goes before its stream
};

}  // namespace kfuse::hip

#endif
