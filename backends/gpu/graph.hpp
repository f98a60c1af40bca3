// SPDX-License-Identifier: Apache-2.0
// Graphs of a GPU: what a stream is given, recorded by stream capture and replayed in one launch.
#ifndef KFUSE_BACKENDS_GPU_GRAPH_HPP
#define KFUSE_BACKENDS_GPU_GRAPH_HPP

#include <kfuse/backends/gpu/handle.hpp>

#include <cstddef>
#include <vector>

namespace kfuse::gpu {

// A recorded graph, ready to run. One that is dropped while it runs is kept by the driver until it is done.
template <class Runtime>
class Graph {
  using Handle = typename Runtime::Graph;

 public:
  Graph(Handle graph, typename Runtime::Stream stream) : nodes_(count(graph)) {
    std::size_t const before = memory_free();
    typename Runtime::GraphExec exec = nullptr;
    check_status<Runtime>(Runtime::instantiate(&exec, graph), "make the recorded graph executable");
    exec_.reset(exec);
    check_status<Runtime>(Runtime::upload(exec, stream), "bring the recorded graph to the device");
    check_status<Runtime>(Runtime::synchronize(stream), "bring the recorded graph to the device");
    std::size_t const after = memory_free();
    bytes_ = before > after ? before - after : 0;
  }

  void launch(typename Runtime::Space const& space) const {
    check_status<Runtime>(Runtime::launch(exec_.get(), Runtime::stream(space)), "launch a graph");
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
  static Count count(Handle graph) {
    std::size_t size = 0;
    check_status<Runtime>(Runtime::get_nodes(graph, nullptr, &size), "count the nodes of a graph");
    std::vector<typename Runtime::Node> nodes(size);
    if (size > 0) check_status<Runtime>(Runtime::get_nodes(graph, nodes.data(), &size), "list the nodes of a graph");
    Count sum;
    for (auto const& node : nodes) {
      typename Runtime::NodeType type;
      check_status<Runtime>(Runtime::get_type(node, &type), "tell a graph node's type");
      if (type == Runtime::type_graph) {
        Handle child = nullptr;
        check_status<Runtime>(Runtime::get_child(node, &child), "look into a graph");
        Count const inside = count(child);
        sum.kernels += inside.kernels;
        sum.all += inside.all;
      } else if (type != Runtime::type_empty) {
        sum.kernels += type == Runtime::type_kernel;
        ++sum.all;
      }
    }
    return sum;
  }
  static std::size_t memory_free() {
    std::size_t free = 0, total = 0;
    check_status<Runtime>(Runtime::memory(&free, &total), "tell how much memory is free");
    return free;
  }

  Unique<typename Runtime::GraphExec, Runtime::destroy_exec> exec_;
  Count nodes_;
  std::size_t bytes_ = 0;
};

// A stream that waits for no other, and the one Kokkos instance on it. What works on the instance can be recorded.
template <class Runtime>
class Recorder {
  using Space = typename Runtime::Space;
  using Stream = typename Runtime::Stream;

 public:
  Recorder() : stream_(make_stream()), space_(stream_.get()) {}

  Space const& space() const { return space_; }

  // The graph of what work(space()) puts on the stream; nothing runs. Whatever is thrown meanwhile, the stream works as
  // before. The relaxed mode lets Kokkos ask for memory of no size at every launch.
  template <class Work>
  Graph<Runtime> record(Work const& work) const {
    check_status<Runtime>(Runtime::begin_capture(stream_.get()), "begin to record a stream");
    try {
      work(space_);
    } catch (...) {
      end();
      (void)Runtime::last_error();  // what was refused while recording
      throw;
    }
    auto const [graph, status] = end();
    check_status<Runtime>(status, "record the stream: it was given what cannot be recorded");
    return Graph<Runtime>(graph.get(), stream_.get());
  }

 private:
  struct Recorded {
    Unique<typename Runtime::Graph, Runtime::destroy_graph> graph;
    typename Runtime::Status status;
  };
  Recorded end() const {
    typename Runtime::Graph graph = nullptr;
    auto const status = Runtime::end_capture(stream_.get(), &graph);
    return {decltype(Recorded::graph)(graph), status};
  }
  static Stream make_stream() {
    Stream stream = nullptr;
    check_status<Runtime>(Runtime::create_stream(&stream), "make a stream");
    return stream;
  }

  Unique<Stream, Runtime::destroy_stream> stream_;
  Space space_;  // goes before its stream
};

}  // namespace kfuse::gpu

#endif
