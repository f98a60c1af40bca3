// SPDX-License-Identifier: Apache-2.0
// Whole models against the results of Hugging Face's own code in double precision: MiniLM with its real weights, a
// small Llama through its KV cache, a small GPT-2.
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/stage/gather.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/models/eager_layer.hpp>
#include <kfuse/models/fused_layer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using Space = Kokkos::DefaultExecutionSpace;
using kfuse::LayerConfig;
using kfuse::Matrix;
using kfuse::Safetensors;

template <class Element>
using Run = kfuse::LayerFunction<Space, Element>;

std::filesystem::path data(char const* variable) {
  char const* const folder = std::getenv(variable);
  REQUIRE_MESSAGE(folder != nullptr, "set " << std::string(variable) << "; make test does");
  return folder;
}

template <class Element>
std::vector<double> download(Matrix<Space, Element> const& matrix) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, matrix);
  std::vector<double> values(host.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = kfuse::to_real(host.data()[i]);
  return values;
}

double largest_difference(std::vector<double> const& a, std::vector<double> const& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (double const d = std::abs(a[i] - b[i]); !(d <= worst)) worst = d;
  return worst;
}

template <class Element>
kfuse::Tensor<Element, 2> view(Matrix<Space, Element> const& m) {
  return kfuse::as_tensor(m);
}

// All layers of a model, their caches, and memory for what flows between them.
template <class Element>
struct Model {
  LayerConfig config;
  int batch, capacity;
  std::vector<kfuse::LayerWeights<Space, Element>> weights;
  std::vector<kfuse::KvCache<Space, Element>> caches;
  Matrix<Space, kfuse::Real<Element>> table;
  Space space;
  kfuse::Blas<Space> blas{space};
  kfuse::Workspace<Space> workspace{std::size_t(8) << 20};

  Model(Safetensors const& file, LayerConfig const& c, int b, int cap) : config(c), batch(b), capacity(cap) {
    kfuse::validate(config);
    for (int i = 0; i < config.layers; ++i) {
      weights.push_back(kfuse::load_weights<Space, Element>(file, config, i));
      caches.emplace_back(config, batch, capacity);
    }
    table = kfuse::rope_table<Space, Element>(config, capacity);
  }

  Matrix<Space, Element> buffer(int tokens) const {
    return Matrix<Space, Element>("buffer", batch * tokens, config.hidden);
  }

  // states[0] holds the input; layer i reads states[i] and writes states[i + 1].
  void run(Space const& on, Run<Element>& layer, kfuse::Progress<Space> const& progress,
           std::vector<Matrix<Space, Element>> const& states) {
    for (int i = 0; i < config.layers; ++i)
      layer(on, blas, workspace, {config, weights[i], caches[i], progress, table}, view(states[i]),
            view(states[i + 1]));
  }
  std::vector<Matrix<Space, Element>> states(int tokens) const {
    std::vector<Matrix<Space, Element>> result;
    for (int i = 0; i <= config.layers; ++i) result.push_back(buffer(tokens));
    return result;
  }
  void set(Matrix<Space, Element> const& m, std::vector<double> const& values) const {
    Kokkos::deep_copy(m, kfuse::impl::upload<Space, Element>("input", values, int(m.extent(0)), int(m.extent(1))));
  }
};

LayerConfig llama_tiny() {
  LayerConfig c;
  c.family = kfuse::Family::llama;
  c.hidden = 96, c.heads = 6, c.kv_heads = 2, c.head_dim = 16, c.intermediate = 200, c.layers = 2, c.vocabulary = 64;
  c.max_positions = 131072, c.norm_epsilon = 1e-5, c.rope_theta = 500000;
  c.rope_scaling = kfuse::Llama3Scaling{32, 1, 4, 8192};
  return c;
}
LayerConfig gpt2_tiny() {
  LayerConfig c;
  c.family = kfuse::Family::gpt2;
  c.hidden = 96, c.heads = c.kv_heads = 6, c.head_dim = 16, c.intermediate = 384, c.layers = 2, c.vocabulary = 64;
  c.max_positions = 64, c.norm_epsilon = 1e-5;
  return c;
}

template <class Element>
void check_llama(Run<Element>& layer, double bound) {
  Safetensors const file(data("KFUSE_TEST_DATA") / "llama_tiny.safetensors");
  Model<Element> model(file, llama_tiny(), 2, 20);
  auto const norm = kfuse::load_matrix<Space, Element>(file, "norm.weight", 1, 96);
  auto const last_norm = [&](Matrix<Space, Element> const& x) {
    auto const y = Matrix<Space, Element>("y", x.extent(0), x.extent(1));
    kfuse::rmsnorm(model.space, x, kfuse::impl::only_row(norm), y, {.epsilon = 1e-5});
    return download(y);
  };

  kfuse::Progress<Space> const prefill(2, 13);
  auto const states = model.states(13);
  model.set(states[0], to_double(file.tensor("prefill.input")));
  prefill.advance(model.space);
  model.run(model.space, layer, prefill, states);
  CHECK(largest_difference(download(states[1]), to_double(file.tensor("prefill.layer0"))) < bound);
  CHECK(largest_difference(last_norm(states[2]), to_double(file.tensor("prefill.layers_and_norm"))) < bound);

  kfuse::Progress<Space> const decode(prefill, 1);
  auto const step = model.states(1);
  for (int i = 0; i < 3; ++i) {
    std::string const name = "decode." + std::to_string(i);
    model.set(step[0], to_double(file.tensor(name + ".input")));
    decode.advance(model.space);
    model.run(model.space, layer, decode, step);
    CHECK(largest_difference(last_norm(step[2]), to_double(file.tensor(name + ".layers_and_norm"))) < bound);
  }
}

template <class Element>
void check_gpt2(Run<Element>& layer, double bound) {
  Safetensors const file(data("KFUSE_TEST_DATA") / "gpt2_tiny.safetensors");
  Model<Element> model(file, gpt2_tiny(), 2, 16);
  kfuse::Progress<Space> const prefill(2, 11);
  auto const states = model.states(11);
  model.set(states[0], to_double(file.tensor("hidden_state.0")));
  prefill.advance(model.space);
  model.run(model.space, layer, prefill, states);
  CHECK(largest_difference(download(states[1]), to_double(file.tensor("hidden_state.1"))) < bound);

  auto const weight = kfuse::load_matrix<Space, Element>(file, "ln_f.weight", 1, 96);
  auto const bias = kfuse::load_matrix<Space, Element>(file, "ln_f.bias", 1, 96);
  auto const y = model.buffer(11);
  kfuse::layernorm(model.space, states[2], kfuse::impl::only_row(weight), kfuse::impl::only_row(bias), y,
                   {.epsilon = 1e-5});
  CHECK(largest_difference(download(y), to_double(file.tensor("final"))) < bound);

  // The last three tokens again, one by one, behind the first eight: the same results.
  Model<Element> again(file, gpt2_tiny(), 2, 16);
  auto const all = to_double(file.tensor("hidden_state.0"));
  auto const tokens = [&](int first, int count) {
    std::vector<double> part;
    for (int b = 0; b < 2; ++b)
      part.insert(part.end(), all.begin() + (b * 11 + first) * 96, all.begin() + (b * 11 + first + count) * 96);
    return part;
  };
  kfuse::Progress<Space> const chunk(2, 8);
  auto const chunk_states = again.states(8);
  again.set(chunk_states[0], tokens(0, 8));
  chunk.advance(again.space);
  again.run(again.space, layer, chunk, chunk_states);
  kfuse::Progress<Space> const one(chunk, 1);
  auto const one_states = again.states(1);
  auto const expected = download(states[2]);
  for (int t = 8; t < 11; ++t) {
    again.set(one_states[0], tokens(t, 1));
    one.advance(again.space);
    again.run(again.space, layer, one, one_states);
    auto const got = download(one_states[2]);
    for (int b = 0; b < 2; ++b)
      CHECK(largest_difference({got.begin() + b * 96, got.begin() + (b + 1) * 96},
                               {expected.begin() + (b * 11 + t) * 96, expected.begin() + (b * 11 + t + 1) * 96}) <
            bound);
  }
}

// The hidden states of MiniLM on three sentences, embeddings included; returns the sentence embeddings.
template <class Element>
std::vector<double> run_minilm(Run<Element>& layer, std::vector<double>& worst) {
  Safetensors const file(data("KFUSE_MINILM") / "model.safetensors");
  Safetensors const reference(data("KFUSE_TEST_DATA") / "minilm.safetensors");
  int const batch = 3, tokens = 22, hidden = 384;
  Model<Element> model(file, kfuse::preset("minilm"), batch, tokens);

  kfuse::Progress<Space> progress(batch, tokens);
  progress.visible = decltype(progress.visible)("visible", batch, tokens);
  Kokkos::View<int*, Space> const ids("ids", batch * tokens), zeros("zeros", batch * tokens);
  auto const ids_host = Kokkos::create_mirror_view(ids);
  auto const visible_host = Kokkos::create_mirror_view(progress.visible);
  auto const id = to_double(reference.tensor("input_ids")), mask = to_double(reference.tensor("attention_mask"));
  for (int i = 0; i < batch * tokens; ++i) {
    ids_host(i) = int(id[i]);
    visible_host(i / tokens, i % tokens) = mask[i] != 0;
  }
  Kokkos::deep_copy(ids, ids_host);
  Kokkos::deep_copy(progress.visible, visible_host);
  progress.advance(model.space);

  auto const states = model.states(tokens);
  auto const embedding = [&](char const* name, int rows) {
    return kfuse::load_matrix<Space, Element>(file, std::string("embeddings.") + name, rows, hidden);
  };
  fuse(model.space, "kfuse::embedding",
       kfuse::gather(embedding("word_embeddings.weight", 30522), ids) |
           kfuse::add_gathered(embedding("position_embeddings.weight", 512), progress.positions) |
           kfuse::add_gathered(embedding("token_type_embeddings.weight", 2), zeros) |
           kfuse::layernorm(kfuse::impl::only_row(embedding("LayerNorm.weight", 1)),
                            kfuse::impl::only_row(embedding("LayerNorm.bias", 1)), {.epsilon = 1e-12}) |
           kfuse::store(states[0]));
  model.space.fence();
  model.run(model.space, layer, progress, states);

  worst.clear();
  for (int i = 0; i <= model.config.layers; ++i)
    worst.push_back(
        largest_difference(download(states[i]), to_double(reference.tensor("hidden_state." + std::to_string(i)))));
  std::vector<double> const last = download(states.back());
  std::vector<double> sentences(batch * hidden, 0.0);
  for (int b = 0; b < batch; ++b) {
    double norm = 0;
    for (int c = 0; c < hidden; ++c) {
      for (int t = 0; t < tokens; ++t)
        sentences[b * hidden + c] += mask[b * tokens + t] * last[(b * tokens + t) * hidden + c];
      norm += sentences[b * hidden + c] * sentences[b * hidden + c];
    }
    for (int c = 0; c < hidden; ++c) sentences[b * hidden + c] /= std::sqrt(norm);
  }
  return sentences;
}

// Without the weights, which `make weights` fetches, their tests count as skipped.
doctest::skip unless_minilm_is_there() {
  char const* const folder = std::getenv("KFUSE_MINILM");
  return !(folder != nullptr && std::filesystem::exists(std::filesystem::path(folder) / "model.safetensors"));
}

template <class Element>
void check_minilm(Run<Element>& layer, double bound) {
  std::vector<double> worst;
  run_minilm<Element>(layer, worst);
  for (std::size_t i = 0; i < worst.size(); ++i) {
    CAPTURE(i);
    CHECK(worst[i] < bound);
  }
}

// Do the sentence embeddings point where Hugging Face's do?
template <class Element>
void check_direction(Run<Element>& layer) {
  Safetensors const reference(data("KFUSE_TEST_DATA") / "minilm.safetensors");
  auto const expected = to_double(reference.tensor("sentence_embedding"));
  std::vector<double> worst;
  auto const got = run_minilm<Element>(layer, worst);
  for (int b = 0; b < 3; ++b) {
    double cosine = 0;
    for (int c = 0; c < 384; ++c) cosine += got[b * 384 + c] * expected[b * 384 + c];
    CHECK(cosine >= 0.999);
    CHECK(cosine <= 1 + 1e-6);
  }
}

// Six steps behind eight tokens, the output of each the input of the next. `input` holds the first tokens' states.
std::vector<double> generate(Safetensors const& file, LayerConfig const& config, std::string const& input,
                             bool replayed) {
  int const batch = 2, prompt = 8, steps = 6;
  auto const values = to_double(file.tensor(input));
  auto const first = [&](int tokens) {
    std::vector<double> part(std::size_t(batch) * tokens * config.hidden);
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = values[i % values.size()];
    return part;
  };
  Model<float> model(file, config, batch, prompt + steps);
  kfuse::Progress<Space> const prefill(batch, prompt);
  auto const states = model.states(prompt);
  model.set(states[0], first(prompt));
  prefill.advance(model.space);
  model.run(model.space, kfuse::fused_layer<Space, float>, prefill, states);
  model.space.fence();

  kfuse::Progress<Space> const decode(prefill, 1);
  auto const step = model.states(1);
  model.set(step[0], first(1));
  auto const work = [&](Space const& on) {
    decode.advance(on);
    model.run(on, kfuse::fused_layer<Space, float>, decode, step);
    Kokkos::deep_copy(on, step.front(), step.back());
  };
  std::vector<double> all;
  kfuse::Replay<Space> replay;
  for (int i = 0; i < steps; ++i) {
    if (!replayed) {
      work(model.space);
    } else if (i == 0) {
      replay.record(work);  // which runs the step once
      CHECK((kfuse::impl::Backend<Space>::is_host || replay.recorded()));
    } else {
      replay.run(model.space);
    }
    model.space.fence();
    auto const y = download(step.back());
    CHECK((all.empty() || !std::equal(y.begin(), y.end(), all.end() - std::ptrdiff_t(y.size()))));
    all.insert(all.end(), y.begin(), y.end());
  }
  auto const lengths = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, decode.lengths);
  CHECK(lengths(0) == prompt + steps);
  return all;
}
void check_replayed_decode(std::string const& name, LayerConfig const& config, std::string const& input) {
  Safetensors const file(data("KFUSE_TEST_DATA") / name);
  CHECK(generate(file, config, input, false) == generate(file, config, input, true));
}

}  // namespace

TEST_SUITE_BEGIN("models");

TEST_CASE("a small Llama: prefill and three steps through the cache equal Hugging Face's results in double") {
  SUBCASE("fused, fp64") {
    check_llama<double>(kfuse::fused_layer<Space, double>, 1e-10);
  }
  SUBCASE("eager, fp64") {
    check_llama<double>(kfuse::eager_layer<Space, double>, 1e-10);
  }
  SUBCASE("fused, fp32") {
    check_llama<float>(kfuse::fused_layer<Space, float>, 1e-4);
  }
  SUBCASE("eager, fp32") {
    check_llama<float>(kfuse::eager_layer<Space, float>, 1e-4);
  }
  SUBCASE("fused, bf16") {
    check_llama<kfuse::bf16>(kfuse::fused_layer<Space, kfuse::bf16>, 0.3);
  }
  SUBCASE("fused, fp16") {
    check_llama<kfuse::fp16>(kfuse::fused_layer<Space, kfuse::fp16>, 0.05);
  }
}

TEST_CASE("a small GPT-2 equals Hugging Face's results in double, at once and token by token") {
  SUBCASE("fused, fp64") {
    check_gpt2<double>(kfuse::fused_layer<Space, double>, 1e-10);
  }
  SUBCASE("eager, fp64") {
    check_gpt2<double>(kfuse::eager_layer<Space, double>, 1e-10);
  }
  SUBCASE("fused, fp32") {
    check_gpt2<float>(kfuse::fused_layer<Space, float>, 1e-4);
  }
  SUBCASE("eager, fp32") {
    check_gpt2<float>(kfuse::eager_layer<Space, float>, 1e-4);
  }
}

TEST_CASE("MiniLM with its real weights equals Hugging Face's hidden states in double" * unless_minilm_is_there()) {
  SUBCASE("fused, fp64") {
    check_minilm<double>(kfuse::fused_layer<Space, double>, 1e-6);
  }
  SUBCASE("eager, fp64") {
    check_minilm<double>(kfuse::eager_layer<Space, double>, 1e-6);
  }
  SUBCASE("fused, fp32") {
    check_minilm<float>(kfuse::fused_layer<Space, float>, 1e-4);
  }
  SUBCASE("eager, fp32") {
    check_minilm<float>(kfuse::eager_layer<Space, float>, 1e-4);
  }
}

TEST_CASE("in bf16 MiniLM's sentence embeddings point the same way" * unless_minilm_is_there()) {
  SUBCASE("fused") {
    check_direction<kfuse::bf16>(kfuse::fused_layer<Space, kfuse::bf16>);
  }
  SUBCASE("eager") {
    check_direction<kfuse::bf16>(kfuse::eager_layer<Space, kfuse::bf16>);
  }
}

TEST_CASE("one recorded decode step serves a growing sequence, with the bits of the eager run") {
  SUBCASE("Llama") {
    check_replayed_decode("llama_tiny.safetensors", llama_tiny(), "prefill.input");
  }
  SUBCASE("GPT-2") {
    check_replayed_decode("gpt2_tiny.safetensors", gpt2_tiny(), "hidden_state.0");
  }
}

TEST_CASE("a key mask stays with its sequences when the next tokens come") {
  kfuse::Progress<Space> prefill(2, 3);
  prefill.visible = decltype(prefill.visible)("visible", 2, 8);
  CHECK(kfuse::Progress<Space>(prefill, 1).visible.data() == prefill.visible.data());
}

TEST_CASE("a layer refuses what does not fit before it launches anything") {
  Safetensors const file(data("KFUSE_TEST_DATA") / "llama_tiny.safetensors");
  Model<float> model(file, llama_tiny(), 2, 8);
  auto const call = [&](int batch, int tokens, Matrix<Space, float> const& x, Matrix<Space, float> const& y) {
    kfuse::Progress<Space> const progress(batch, tokens);
    kfuse::fused_layer<Space, float>(model.space, model.blas, model.workspace,
                                     {model.config, model.weights[0], model.caches[0], progress, model.table}, view(x),
                                     view(y));
  };
  auto const x = model.buffer(4), y = model.buffer(4);
  CHECK_THROWS_WITH_AS(call(2, 5, x, y), doctest::Contains("x has the shape [8, 96]"), kfuse::Error);
  CHECK_THROWS_WITH_AS(call(4, 2, x, y), doctest::Contains("another batch"), kfuse::Error);
  CHECK_THROWS_WITH_AS(call(2, 4, x, x), doctest::Contains("overlap"), kfuse::Error);
  auto const long_x = model.buffer(9), long_y = model.buffer(9);
  CHECK_THROWS_WITH_AS(call(2, 9, long_x, long_y), doctest::Contains("holds 8 tokens"), kfuse::Error);
  auto const nothing = model.buffer(0);
  CHECK_NOTHROW(call(2, 0, nothing, nothing));
  auto const other = kfuse::random_weights<Space, float>(model.space, gpt2_tiny(), 1);
  kfuse::Progress<Space> const four(2, 4);
  CHECK_THROWS_WITH_AS(
      (kfuse::fused_layer<Space, float>(model.space, model.blas, model.workspace,
                                        {model.config, other, model.caches[0], four, model.table}, view(x), view(y))),
      doctest::Contains("was made for another configuration"), kfuse::Error);
  // One step of workspace less than the layer needs, wherever in the layer that would be missed.
  for (Run<float>& run : {std::ref(kfuse::fused_layer<Space, float>), std::ref(kfuse::eager_layer<Space, float>)}) {
    kfuse::Progress<Space> const progress(2, 4);
    auto const call_with = [&](kfuse::Workspace<Space>& workspace) {
      run(model.space, model.blas, workspace, {model.config, model.weights[0], model.caches[0], progress, model.table},
          view(x), view(y));
    };
    auto measured = kfuse::Workspace<Space>::counting();
    {
      kfuse::Ledger const nothing_runs(kfuse::Ledger::Execution::none);
      call_with(measured);
    }
    kfuse::Workspace<Space> small(measured.peak() - 1), enough(measured.peak());
    kfuse::Ledger const ledger;
    CHECK_THROWS_WITH_AS(call_with(small), doctest::Contains("make it at least"), kfuse::Error);
    CHECK(ledger.launches() == 0);
    CHECK_NOTHROW(call_with(enough));
  }
}

TEST_SUITE_END();
