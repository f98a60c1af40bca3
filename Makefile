# SPDX-License-Identifier: Apache-2.0
# kfuse's commands. Everything that they make lies under build/.

SHELL := /bin/bash
setup := core/cmake/setup.sh

PRESET ?= $(shell $(setup) best)
PRESET := $(PRESET)
BUILD ?= build/$(PRESET)
JOBS ?= $(shell nproc)
weights := build/data/minilm/model.safetensors
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export CMAKE_GENERATOR ?= $(if $(shell command -v ninja),Ninja,Unix Makefiles)
ifdef Kokkos_ROOT
  export Kokkos_ROOT := $(abspath $(Kokkos_ROOT))
endif

toolchain := build/deps/$(PRESET).cmake
build := cmake --build $(BUILD) --target

.PHONY: help bench test setup weights budgets programs picture format format-check clean force

help: ; @echo "$$usage"
define usage
make bench         set up, build, and run the layer benchmark on the best device of this machine
make test          set up, build, and run the tests
make budgets       write the table of what kernels take of each GPU anew
make programs      compile and link the models and the benchmark for GPUs of both vendors; no GPU is needed
make picture       draw the results under bench/results
make format        format all sources; `make format-check` only looks
make clean         remove build/

Variables, as in `make bench PRESET=host`:
  PRESET       host, host-debug (sanitizers), host-openmp, cuda or hip; by itself the best device's
  Kokkos_ROOT  an installed Kokkos to build with; by itself one that CMake finds, or one that the set-up brings
  BUILD        the build folder; by itself build/PRESET
  ARGUMENTS    of the benchmark program, as in ARGUMENTS="op rmsnorm"; by itself a MiniLM and a Llama layer
  JOBS         compiler processes at a time; by itself one a core
endef
export usage

bench: $(BUILD)/configured weights
	@$(build) kfuse-bench >&2
ifdef ARGUMENTS
	@$(BUILD)/bench/kfuse-bench $(ARGUMENTS)
else
	@[ ! -e $(weights) ] || \
	  $(BUILD)/bench/kfuse-bench layer --model minilm --phase prefill --sequence 256 --weights $(weights)
	@$(BUILD)/bench/kfuse-bench layer
endif

test: $(BUILD)/configured weights
	@$(build) all >&2
	@core/cmake/run-tests.sh $(BUILD) $(CTEST_ARGUMENTS)

# For GPUs of both vendors, on any machine. `make test` checks the table.
budgets:
	@tests/device_code/compile.sh build/device_code
	@python3 tests/device_code/budgets.py build/device_code --write
programs:
	@tests/device_code/compile.sh build/device_code programs

picture:
	@python=$$($(setup) matplotlib) && "$$python" bench/plot.py bench/results

# The set-up runs every time, but leaves its file alone when there is nothing to do.
setup: $(BUILD)/configured
$(BUILD)/configured: $(toolchain) CMakePresets.json
	@cmake --preset $(PRESET) -B $(BUILD) --fresh --toolchain $(abspath $(toolchain)) >&2
	@touch $@
$(toolchain): force
	@$(setup) $(PRESET)
weights:
	@$(setup) weights || echo "make: without the MiniLM weights; what needs them is skipped" >&2

sources = $(shell git ls-files '*.hpp' '*.cpp')
format format-check:
	@tool=$$($(setup) clang-format) && $$tool $(if $(filter format,$@),-i,--dry-run --Werror) $(sources)

clean:
	rm -rf build
