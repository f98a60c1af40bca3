// SPDX-License-Identifier: Apache-2.0
// The benchmark program as its users meet it: exit codes, messages, and the files it leaves. The program is named by
// the environment variable KFUSE_BENCH, which CTest sets.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>

#include "temporary_folder.hpp"
#include <nlohmann/json.hpp>
#include <sys/wait.h>

namespace {

using namespace kfuse::test;

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

struct Outcome {
  int code = -1;
  std::string out, err;

  // One line that says what is wrong, and nothing else.
  bool is_refusal(std::string const& flag) const {
    return code == 2 && out.empty() && std::count(err.begin(), err.end(), '\n') == 1 &&
           err.rfind("kfuse-bench: ", 0) == 0 && contains(err, flag);
  }
};

// In a build without the benchmark program its tests count as skipped.
doctest::skip unless_it_is_there() {
  return std::getenv("KFUSE_BENCH") == nullptr;
}

// The program, in a folder of its own.
class Program {
 public:
  Outcome run(std::string const& arguments) const {
    std::string const command = "cd '" + folder_.path().string() + "' && '" + std::getenv("KFUSE_BENCH") + "' " +
                                arguments + " >stdout.txt 2>stderr.txt </dev/null";
    int const status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(file("stdout.txt")), text_of(file("stderr.txt"))};
  }
  std::filesystem::path file(std::string const& name) const { return folder_.path(name); }
  nlohmann::json json(std::string const& name) const { return nlohmann::json::parse(text_of(file(name))); }
  // Nothing but what the test put there.
  bool has_left(std::initializer_list<std::string> names) const {
    for (auto const& entry : std::filesystem::directory_iterator(folder_.path())) {
      std::string const name = entry.path().filename().string();
      bool const known = std::find(names.begin(), names.end(), name) != names.end();
      if (!known && name != "stdout.txt" && name != "stderr.txt") return false;
    }
    return true;
  }

 private:
  TemporaryFolder folder_;
};

char const* const tiny_llama = R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 96, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
  "max_position_embeddings": 128, "vocab_size": 100, "num_hidden_layers": 2})";

}  // namespace

TEST_CASE("help, version and list need no device and succeed" * unless_it_is_there()) {
  Program const program;
  for (char const* arguments : {"--help", "layer --help", "op --help", "explain --help", "device --help"}) {
    auto const outcome = program.run(arguments);
    CAPTURE(arguments);
    CHECK(outcome.code == 0);
    CHECK(contains(outcome.out, "Usage"));
  }
  CHECK(program.run("--version").code == 0);
  auto const list = program.run("list");
  CHECK(list.code == 0);
  for (char const* name : {"llama-3-8b", "minilm", "bf16", "add_rmsnorm", "--columns"}) CHECK(contains(list.out, name));
}

TEST_CASE("numbers that are none are refused, and the flag is named" * unless_it_is_there()) {
  Program const program;
  for (char const* text : {"12x", "-1", "1e3", "0", "99999999999999999999", "''", "' 5'", "1.5"}) {
    CAPTURE(text);
    std::string const value = text;
    CHECK(program.run("op add_rmsnorm --json out.json --rows " + value).is_refusal("--rows"));
    CHECK(program.run("op add_rmsnorm --rows=" + value).is_refusal("--rows"));
    CHECK(program.run("layer --context " + value).is_refusal("--context"));
  }
  CHECK(program.run("layer --repeats -5").is_refusal("--repeats"));
  CHECK(program.has_left({}));
}

TEST_CASE("a wrong command line is refused in one line" * unless_it_is_there()) {
  Program const program;
  CHECK(program.run("").is_refusal("subcommand"));
  CHECK(program.run("lyer").is_refusal(""));
  CHECK(program.run("op").is_refusal("op"));
  CHECK(program.run("op nothing_like_it").is_refusal("nothing_like_it"));
  CHECK(program.run("op --all nothing_like_it").is_refusal("nothing_like_it"));
  CHECK(program.run("op --all add_rmsnorm --inner 3").is_refusal("--inner"));
  CHECK(program.run("op --all --model gpt2").is_refusal("--model"));
  CHECK(program.run("op add_rmsnorm --calls 0").is_refusal("--calls"));
  CHECK(program.run("op add_rmsnorm --calls 5000").is_refusal("--calls"));
  CHECK(program.run("layer --all").is_refusal("--all"));
  CHECK(program.run("explain --all --phase decode").is_refusal("--phase"));
  CHECK(program.run("op add_rmsnorm --element fp17").is_refusal("--element"));
  CHECK(program.run("op add_rmsnorm --wibble 3").is_refusal("--wibble"));
  CHECK(program.run("op add_rmsnorm --rows").is_refusal("--rows"));
  CHECK(program.run("op add_rmsnorm --rows 3 --rows 4").is_refusal("--rows"));
  CHECK(program.run("op add_rmsnorm --modes eager,warp").is_refusal("--modes"));
  CHECK(program.run("op add_rmsnorm --modes eager,eager").is_refusal("--modes"));
  CHECK(program.run("op add_rmsnorm --cadence lukewarm").is_refusal("--cadence"));
  CHECK(program.run("op add_rmsnorm --space vax").is_refusal("--space"));
  CHECK(program.run("explain add_rmsnorm --batch 3").is_refusal("--batch"));
  CHECK(program.run("explain add_rmsnorm --model gpt2").is_refusal("--model"));
  CHECK(program.run("explain --rows 3").is_refusal("--rows"));
  CHECK(program.run("layer --phase later").is_refusal("--phase"));
  CHECK(program.run("layer --model no-such-model").is_refusal("no-such-model"));
  CHECK(program.run("layer --sequence 10 --context 5").is_refusal("--context"));
  CHECK(program.run("layer --layer-index 1").is_refusal("--layer-index"));
}

TEST_CASE("a wrong file is refused, and nothing is left behind" * unless_it_is_there()) {
  Program const program;
  std::ofstream(program.file("broken.json")) << R"({"model_type": "llama", "hidden_size": )";
  std::ofstream(program.file("broken.safetensors")) << "this is no such file";
  CHECK(program.run("layer --model broken.json").is_refusal("broken.json"));
  CHECK(program.run("layer --weights broken.safetensors").is_refusal("broken.safetensors"));
  CHECK(program.run("layer --weights absent.safetensors").is_refusal("absent.safetensors"));
  CHECK(program.run("op add_rmsnorm --json absent/out.json").is_refusal("--json"));
  CHECK(program.run("op add_rmsnorm --json .").is_refusal("--json"));
  CHECK(program.has_left({"broken.json", "broken.safetensors"}));
}

TEST_CASE("too little memory is said before any is taken: how much is needed, how much there is" *
          unless_it_is_there()) {
  Program const program;
  CHECK(program.run("op attention --batch 65536 --heads 65536 --kv-heads 1").is_refusal("2^31 - 1"));
  CHECK(program.run("op rope_qkv --heads 65536 --head-dim 65536").is_refusal("2^31 - 1"));
  CHECK(program.run("op swiglu --inner 2147483647").is_refusal("2^31 - 1"));
  auto const some = program.run("op add_rmsnorm --rows 2000000000 --columns 65536 --json out.json");
  CHECK(some.is_refusal("device memory too small"));
  CHECK(contains(some.err, "needs"));
  CHECK(contains(some.err, "free"));
  CHECK(program.run("op add_rmsnorm --rows 2147483647 --columns 2147483647 --element fp64").is_refusal("memory"));
  auto const layer = program.run("layer --model llama-3-8b --batch 1000000 --context 100000");
  CHECK(layer.is_refusal("device memory too small"));
  CHECK(contains(layer.err, "needs"));
  CHECK(program.has_left({}));
}

TEST_CASE("an operator is checked and timed in each mode, and the file says so" * unless_it_is_there()) {
  Program const program;
  auto const outcome = program.run("op add_rmsnorm --rows 37 --columns 129 --element fp32 --repeats 3 --json out.json");
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.empty());
  auto const json = program.json("out.json");
  REQUIRE(json["runs"].size() == 3);
  for (auto const& run : json["runs"]) {
    CHECK(run["work"] == "op/add_rmsnorm");
    CHECK(run["element"] == "fp32");
    CHECK(run["shape"]["rows"] == 37);
    CHECK(run["median_seconds"].get<double>() > 0);
    CHECK(run["p10_seconds"] <= run["median_seconds"]);
    CHECK(run["median_seconds"] <= run["p90_seconds"]);
    CHECK(run["max_deviation"].get<double>() > 0);  // float is not double
    CHECK(run["max_deviation"].get<double>() < 1e-5);
    CHECK(run["reference"] == "fp64");
  }
  CHECK(json["runs"][1]["launches"] == 1);
  CHECK(json["runs"][1]["bytes"] == (4 * 37 * 129 + 129) * 4);
  CHECK(json["runs"][0]["launches"] == 2);
  CHECK(program.has_left({"out.json"}));
}

TEST_CASE("a wrong result is never timed: exit 3, its row says so, and no figure is printed" * unless_it_is_there()) {
  Program const program;
  for (std::string const mode : {"eager", "fused", "replay"}) {
    auto const outcome = program.run("op add_rmsnorm --rows 16 --columns 64 --cadence back-to-back --spoil " + mode +
                                     " --json out.json");
    CAPTURE(mode);
    CHECK(outcome.code == 3);
    CHECK(contains(outcome.err, "op/add_rmsnorm, " + mode + ": wrong result"));
    CHECK(contains(outcome.out, "failed"));
    auto const results = program.json("out.json");
    for (auto const& run : results["runs"]) {
      CHECK(run["median_seconds"].is_null());
      CHECK(run["fraction_of_copy"].is_null());
      CHECK(run["error"].is_string() == (run["mode"] == mode));
    }
  }
}

// Sizes for which every operator is small.
std::string const small =
    " --rows 8 --columns 64 --inner 48 --classes 50 --vocabulary 50 --k 3 --tokens 5 --batch 1 --sequence 5 --context 5"
    " --heads 4 --kv-heads 2 --head-dim 16 --height 5 --width 3 --channels 8 --out 8 --in 12 --hidden 32 --qkv 64";

TEST_CASE("all operators come in one table, each at the sizes asked for" * unless_it_is_there()) {
  Program const program;
  auto const outcome =
      program.run("op --all --calls 1 --element fp32 --cadence back-to-back --repeats 1 --json out.json" + small);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.empty());
  auto const list = program.run("list").out;
  auto const json = program.json("out.json");
  CHECK(json["skipped"].empty());
  for (char const* name : {"add_rmsnorm", "layernorm", "rmsnorm", "softmax", "swiglu"}) {
    CAPTURE(name);
    CHECK(contains(outcome.out, "\n" + std::string(name) + ": "));
  }
  CHECK(contains(outcome.out, "verdict"));
  std::size_t operators = 0, lines = 0;  // two lines each in the list; one each in the table, below its head
  for (std::size_t at = list.find("ops:\n"); (at = list.find('\n', at + 1)) != std::string::npos;) ++operators;
  for (std::size_t at = outcome.out.find("\noperator"); (at = outcome.out.find('\n', at + 1)) != std::string::npos;)
    ++lines;
  CHECK(lines - 1 == operators / 2);
  for (auto const& run : json["runs"]) {
    CAPTURE(run.dump());
    CHECK(run["error"].is_null());
    CHECK(run["median_seconds"].get<double>() > 0);
    if (run["shape"].contains("rows")) CHECK(run["shape"]["rows"] == 8);
    CHECK(run["verdict"].is_null());  // no bar is for these sizes
  }
}

TEST_CASE("an operator at the sizes of a bar has a verdict; several calls are timed as one" * unless_it_is_there()) {
  Program const program;
  std::string const sizes = "op rmsnorm --rows 1 --columns 4096 --repeats 1 --modes fused,replay --json out.json ";
  auto const outcome = program.run(sizes + "--calls 128");
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  auto const json = program.json("out.json");
  for (auto const& run : json["runs"]) {
    CHECK(run["shape"]["calls"] == 128);
    CHECK(run["bytes"] == 3 * 4096 * 2);  // of one call
    CHECK(run["launches"] == 1);
    bool const is_replay = run["mode"] == "replay";
    CHECK(run["bar"].is_null() == !is_replay);
    CHECK(run["verdict"].is_null() == !is_replay);
    if (!is_replay) continue;
    CHECK(run["bar"].get<double>() == 1.9e-6);
    CHECK(run["bar_of"] == "seconds");
    bool const is_reached = run["median_seconds"].get<double>() <= 1.9e-6;
    CHECK((run["verdict"] == "reached") == is_reached);
    CHECK(contains(outcome.out, "the bar of 1.90 us is " + run["verdict"].get<std::string>()));
  }
  CHECK(program.run(sizes + "--calls 127 --cadence back-to-back").code == 0);
  auto const other = program.json("out.json");
  for (auto const& run : other["runs"]) CHECK(run["bar"].is_null());
}

TEST_CASE("what does not fit in memory is left out of a table of many, and named" * unless_it_is_there()) {
  Program const program;
  auto const outcome =
      program.run("op --all rmsnorm softmax --rows 2000000000 --columns 65536 --calls 1 --json out.json");
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  CHECK(contains(outcome.out, "softmax: rows 2000000000, columns 65536  skipped: device memory too small"));
  auto const json = program.json("out.json");
  CHECK(json["runs"].empty());
  REQUIRE(json["skipped"].size() == 2);
  CHECK(json["skipped"][0]["work"] == "op/rmsnorm");
  CHECK(contains(json["skipped"][0]["reason"].get<std::string>(), "needs"));
}

TEST_CASE("a wrong result among many is said, and its figures are not there" * unless_it_is_there()) {
  Program const program;
  auto const outcome = program.run(
      "op --all rmsnorm softmax --rows 8 --columns 64 --calls 1 --modes fused --spoil fused --json out.json");
  CHECK(outcome.code == 3);
  CHECK(contains(outcome.err, "op/softmax, fused: wrong result"));
  CHECK(contains(outcome.out, "failed"));
  CHECK(contains(outcome.out, "wrong result"));
  auto const json = program.json("out.json");
  REQUIRE(json["runs"].size() == 2);
  for (auto const& run : json["runs"]) CHECK(run["median_seconds"].is_null());
}

TEST_CASE("a layer runs eager, fused and replayed, and all agree with a layer in double" * unless_it_is_there()) {
  Program const program;
  std::ofstream(program.file("config.json")) << tiny_llama;
  for (std::string const phase : {"decode --context 33 --batch 2", "prefill --sequence 17", "decode --layers 2"}) {
    CAPTURE(phase);
    auto const outcome = program.run(
        "layer --model config.json --element fp32 --repeats 2 --cadence back-to-back --json out.json --phase " + phase);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    auto const json = program.json("out.json");
    REQUIRE(json["runs"].size() == 3);
    for (auto const& run : json["runs"]) {
      CHECK(run["reference"] == "fp64");
      CHECK(run["max_deviation"].get<double>() > 0);
      CHECK(run["max_deviation"].get<double>() < 1e-4);
    }
    auto const &eager = json["runs"][0], &fused = json["runs"][1];
    CHECK(fused["launches"] < eager["launches"]);
    CHECK(fused["bytes"] < eager["bytes"]);
  }
}

TEST_CASE("explain shows the launches and what fusing saves" * unless_it_is_there()) {
  Program const program;
  auto const op = program.run("explain add_rmsnorm --rows 64 --columns 64 --element fp32");
  CHECK(op.code == 0);
  for (char const* part : {"kfuse::add_rmsnorm", "FLOP/byte", "memory", "Fusing takes 1 of 2 launches away"})
    CHECK(contains(op.out, part));
  auto const all = program.run("explain --all --element fp32" + small);
  CHECK(all.code == 0);
  for (char const* part : {"op/add_rmsnorm, fp32: rows 8, columns 64\n", "op/softmax", "op/swiglu"})
    CHECK(contains(all.out, part));
  CHECK(!contains(all.out, "calls"));
  auto const layer = program.run("explain --model llama-3-8b --batch 4 --element fp32");
  CHECK(layer.code == 0);
  for (char const* part : {"layer/llama-3-8b/decode", "batch 4", "kfuse::linear"}) CHECK(contains(layer.out, part));
}
