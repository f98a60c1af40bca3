// SPDX-License-Identifier: Apache-2.0
#include "layer_case.hpp"

template struct bench::LayerMaker<float>;
