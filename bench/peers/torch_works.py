# SPDX-License-Identifier: Apache-2.0
"""What torch_ops.py times: for each operator of kfuse-bench its inputs, its formula in PyTorch, and Liger's function."""
from dataclasses import dataclass
from typing import Callable, Optional

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # the shapes can be read without
    torch = F = None


@dataclass(frozen=True)
class Work:
    shapes: list                           # as of kfuse-bench, if no file of it gives others
    inputs: Callable                       # (shape, element type): a tuple of tensors
    rows: int                              # the first so many inputs have rows, as has every result
    eager: Callable                        # of the inputs
    formula: Optional[Callable] = None     # for torch.compile, if it is not the eager one
    liger: Optional[Callable] = None       # of liger_kernel's functions and the inputs
    definition: Optional[Callable] = None  # of the inputs in double, if the eager one does not define it
    compared: Optional[Callable] = None    # of the inputs and one result: what can be compared
    dropped: float = 0                     # share of the results that dropout makes zero
    gradient: bool = False                 # the functions give a loss; its gradient by the first input is the work

    def called(self, function):
        if not self.gradient:
            return function

        def gradient_of(x, *others):
            leaf = x.detach().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(function(leaf, *others), leaf)

        return gradient_of


def values(dtype, *extents, low=-1.0, high=1.0):
    return torch.rand(*extents, device="cuda", dtype=dtype) * (high - low) + low


def wide(x):
    return x if x.dtype == torch.float64 else x.float()


def rows_and(*vectors, matrices=1):
    """Inputs of [rows, columns], so many, and then vectors of columns: "weight" around one, "bias" around zero."""
    def inputs(shape, dtype):
        rows, columns = shape["rows"], shape["columns"]
        middles = [1.0 if vector == "weight" else 0.0 for vector in vectors]
        return tuple([values(dtype, rows, columns) for _ in range(matrices)] +
                     [values(dtype, columns, low=middle - 0.5, high=middle + 0.5) for middle in middles])

    return inputs


# Norms.

def rms_norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def rms_norm_formula(x, weight):
    scale = torch.rsqrt(wide(x).pow(2).mean(-1, keepdim=True) + 1e-6)
    return (wide(x) * scale).to(x.dtype) * weight


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)


def add_rms_norm(x, residual, weight):
    total = x + residual
    return total, rms_norm(total, weight)


def add_rms_norm_formula(x, residual, weight):
    total = x + residual
    return total, rms_norm_formula(total, weight)


def add_layer_norm(x, residual, weight, bias):
    total = x + residual
    return total, layer_norm(total, weight, bias)


def batch_norm_relu(x, mean, variance, weight, bias):
    return F.relu(F.batch_norm(x, mean, variance, weight, bias, False, 0.1, 1e-5))


def heads_and_weights(shape, dtype):
    dim = shape["head_dim"]
    heads = [values(dtype, shape["tokens"], shape[name], dim) for name in ("heads", "kv_heads")]
    return (*heads, *[values(dtype, dim, low=0.5, high=1.5) for _ in heads])


def batch_norm_parameters(channels):
    return [values(torch.float32, channels, low=0.5, high=1.5) for _ in range(4)]


def channels_last(shape, dtype):
    x = values(dtype, *[shape[name] for name in ("batch", "height", "width", "channels")]).permute(0, 3, 1, 2)
    return (x, *batch_norm_parameters(shape["channels"]))


def channels_first(shape, dtype):
    x = values(dtype, *[shape[name] for name in ("batch", "channels", "height", "width")])
    return (x, *batch_norm_parameters(shape["channels"]))


def layer_and_batch_norm(shape, dtype):
    out = shape["out"]
    return (values(dtype, out, shape["in"]), values(dtype, out), *batch_norm_parameters(out))


def fold_batch_norm(weight, bias, mean, variance, scale, shift):
    scale = scale * torch.rsqrt(variance + 1e-5)
    return (weight * scale[:, None]).to(weight.dtype), ((bias - mean) * scale + shift).to(bias.dtype)


# Activations.

def bias_activation_mask(x, mask, bias):
    return F.gelu(x + bias).masked_fill(mask, 0)


def masked_rows(shape, dtype):
    x, bias = rows_and("bias")(shape, dtype)
    return x, torch.rand(x.shape, device="cuda").lt(0.1), bias


# Gates. Those of halves are two tensors here, which is the form that PyTorch and Liger are fastest in.

def gates(shape, dtype):
    return tuple(values(dtype, shape["rows"], shape["inner"], low=-3.0, high=3.0) for _ in range(2))


def packed_gates(shape, dtype):
    return (values(dtype, shape["rows"], 2 * shape["inner"], low=-3.0, high=3.0),)


def interleaved(activation):
    return lambda gate_up: activation(gate_up[:, ::2]) * gate_up[:, 1::2]


# Rotary positions, pairs in halves; the cosines and sines of each token are given.

def rope_inputs(shape, dtype):
    tokens, dim = shape["tokens"], shape["head_dim"]
    angles = torch.outer(torch.arange(tokens, device="cuda").double(),
                         10000.0 ** -(torch.arange(0, dim, 2, device="cuda").double() / dim))
    angles = torch.cat((angles, angles), -1)
    return (values(dtype, tokens, shape["heads"], dim), values(dtype, tokens, shape["kv_heads"], dim),
            angles.cos().to(dtype), angles.sin().to(dtype))


def rope(q, k, cosines, sines):
    def rotated(x):
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        return x * cosines[:, None] + torch.cat((-b, a), -1) * sines[:, None]

    return rotated(q), rotated(k)


def liger_rope(liger, q, k, cosines, sines):
    q, k = liger.liger_rope(q.transpose(0, 1)[None], k.transpose(0, 1)[None], cosines[None], sines[None])
    return q[0].transpose(0, 1), k[0].transpose(0, 1)


# Projections. Weights make results about as large as inputs.

def weight(dtype, out, columns):
    size = 1.7 / columns ** 0.5
    return values(dtype, out, columns, low=-size, high=size)


def projection(shape, dtype):
    return values(dtype, shape["rows"], shape["in"]), weight(dtype, shape["out"], shape["in"])


def decode_weights(shape, dtype):
    hidden, inner = shape["hidden"], shape["inner"]
    norms = [values(dtype, hidden, low=0.5, high=1.5) for _ in range(2)]
    return (values(dtype, shape["rows"], hidden), *norms, weight(dtype, shape["qkv"], hidden),
            weight(dtype, hidden, hidden), weight(dtype, 2 * inner, hidden), weight(dtype, hidden, inner))


def decode_products(x, norm1, norm2, qkv, out, gate_up, down):
    mixed = F.linear(rms_norm(x, norm1), qkv)[:, :x.shape[-1]]
    middle = x + F.linear(mixed, out)
    both = F.linear(rms_norm(middle, norm2), gate_up)
    inner = both.shape[-1] // 2
    return middle + F.linear(F.silu(both[:, :inner]) * both[:, inner:], down)


# Softmax and losses.

def logits(shape, dtype):
    rows, classes = shape["rows"], shape["classes"]
    return values(dtype, rows, classes, low=-4.0, high=4.0), torch.randint(0, classes, (rows,), device="cuda")


# Lookups and selection.

def tokens_and_table(shape, dtype):
    rows, vocabulary = shape["rows"], shape["vocabulary"]
    tokens = torch.randperm(vocabulary, device="cuda")[:rows]  # no row is read twice
    return tokens, values(dtype, vocabulary, shape["columns"])


def sum_of_tables(shape, dtype):
    rows, columns, positions, types = shape["rows"], shape["columns"], 512, 2
    tokens, words = tokens_and_table(shape, dtype)
    row = torch.arange(rows, device="cuda")
    return (tokens, row % positions, row % types, words, values(dtype, positions, columns), values(dtype, types, columns))


def embedding_sum(tokens, positions, types, words, places, segments):
    return F.embedding(tokens, words) + F.embedding(positions, places) + F.embedding(types, segments)


def rows_and_k(shape, dtype):
    return values(dtype, shape["rows"], shape["columns"]), torch.empty(shape["k"], device="cuda")  # its length counts


def pointed_to(inputs, indices):
    return inputs[0].gather(-1, indices.view(indices.shape[0], -1))


def wide_rows(*columns, size="columns"):
    """Matrices of 2^26 elements."""
    return [{"rows": (1 << 26) // c, size: c} for c in columns]


NORM_SHAPES = wide_rows(128, 512, 1024, 2048, 4096, 8192, 16384, 65536)
ONE = wide_rows(4096)
FEW = [{"rows": rows, "columns": 4096, "calls": 128} for rows in (1, 64)]
GATE = [{"rows": 8192, "inner": 14336}]
LAYERS = [{"hidden": 4096, "qkv": 6144, "inner": 14336, "calls": 4}, {"hidden": 2048, "qkv": 3072, "inner": 8192, "calls": 8}]
LOSS = [{"rows": 4096, "classes": 128256}]
HEADS = {"tokens": 16384, "heads": 32, "kv_heads": 8, "head_dim": 128}
IMAGES = {"batch": 64, "height": 56, "width": 56, "channels": 256}
DROP = 0.1

WORKS = {
    "rmsnorm": Work(NORM_SHAPES + FEW, rows_and("weight"), 1, rms_norm, rms_norm_formula,
                    lambda liger, x, weight: liger.liger_rms_norm(x, weight, 1e-6)),
    "add_rmsnorm": Work(wide_rows(4096, 8192, 16384, 32768) + FEW, rows_and("weight", matrices=2), 2, add_rms_norm,
                        add_rms_norm_formula,
                        lambda liger, x, r, weight: liger.liger_fused_add_rms_norm(x, r, weight, 1e-6)[::-1]),
    "qk_rmsnorm": Work([HEADS], heads_and_weights, 2,
                       lambda q, k, q_weight, k_weight: (rms_norm(q, q_weight), rms_norm(k, k_weight)),
                       lambda q, k, q_weight, k_weight: (rms_norm_formula(q, q_weight), rms_norm_formula(k, k_weight))),
    "layernorm": Work(NORM_SHAPES, rows_and("weight", "bias"), 1, layer_norm,
                      liger=lambda liger, x, weight, bias: liger.liger_layer_norm(x, weight, bias, 1e-5)),
    "add_layernorm": Work(ONE, rows_and("weight", "bias", matrices=2), 2, add_layer_norm),
    "residual_layernorm_dropout": Work(
        ONE, rows_and("x_bias", "weight", "bias", matrices=2), 2,
        lambda x, r, x_bias, weight, bias: F.dropout(layer_norm(x + x_bias + r, weight, bias), DROP, True),
        definition=lambda x, r, x_bias, weight, bias: layer_norm(x + x_bias + r, weight, bias), dropped=DROP),
    "batchnorm": Work([IMAGES], channels_last, 1, batch_norm_relu),
    "batchnorm_nchw": Work([IMAGES], channels_first, 1, batch_norm_relu),
    "fold_batchnorm": Work([{"out": 4096, "in": 4096}], layer_and_batch_norm, 6, fold_batch_norm),
    "bias_activation": Work(ONE, rows_and("bias"), 1, lambda x, bias: F.gelu(x + bias)),
    "bias_activation_mask": Work(ONE, masked_rows, 2, bias_activation_mask),
    "bias_activation_residual": Work(ONE, rows_and("bias", matrices=2), 2, lambda x, r, bias: r + F.gelu(x + bias)),
    "bias_activation_dropout_residual": Work(
        ONE, rows_and("bias", matrices=2), 2, lambda x, r, bias: r + F.dropout(F.gelu(x + bias), DROP, True),
        definition=lambda x, r, bias: r + F.gelu(x + bias), compared=lambda inputs, y: y - inputs[1], dropped=DROP),
    "add_multiply_relu": Work(ONE, rows_and(matrices=3), 3, lambda x, a, f: F.relu((x + a) * f)),
    "swiglu": Work(GATE, gates, 2, lambda gate, up: F.silu(gate) * up,
                   liger=lambda liger, gate, up: liger.liger_swiglu(gate, up)),
    "geglu": Work(GATE, gates, 2, lambda gate, up: F.gelu(gate) * up),
    "geglu_tanh": Work(GATE, gates, 2, lambda gate, up: F.gelu(gate, approximate="tanh") * up,
                       liger=lambda liger, gate, up: liger.liger_geglu(gate, up)),
    "reglu": Work(GATE, gates, 2, lambda gate, up: F.relu(gate) * up),
    "swiglu_interleaved": Work(GATE, packed_gates, 1, interleaved(lambda gate: F.silu(gate))),
    "geglu_interleaved": Work(GATE, packed_gates, 1, interleaved(lambda gate: F.gelu(gate))),
    "reglu_interleaved": Work(GATE, packed_gates, 1, interleaved(lambda gate: F.relu(gate))),
    "rope": Work([HEADS], rope_inputs, 4, rope, liger=liger_rope),
    "fuse_linear": Work([{"rows": 1, "in": 4096, "out": 4096, "calls": 16}], projection, 1, lambda x, w: F.linear(x, w)),
    "decode_products": Work([{"rows": rows, **layer} for layer in LAYERS for rows in (1, 4, 16)], decode_weights, 1,
                            decode_products),
    "softmax": Work(ONE + [{"rows": 4096, "columns": 32768}], rows_and(), 1, lambda x: F.softmax(x, -1),
                    lambda x: F.softmax(wide(x), -1).to(x.dtype), lambda liger, x: liger.liger_softmax(x)),
    "log_softmax": Work(ONE, rows_and(), 1, lambda x: F.log_softmax(x, -1)),
    "cross_entropy": Work(LOSS, logits, 2, lambda x, labels: F.cross_entropy(x, labels, reduction="none"),
                          lambda x, labels: F.cross_entropy(wide(x), labels, reduction="none"),
                          lambda liger, x, labels: liger.liger_cross_entropy(x, labels, reduction="none")),
    "cross_entropy_gradient": Work(LOSS, logits, 2, lambda x, labels: F.cross_entropy(x, labels, reduction="sum"),
                                   lambda x, labels: F.cross_entropy(wide(x), labels, reduction="sum"),
                                   lambda liger, x, labels: liger.liger_cross_entropy(x, labels, reduction="sum"),
                                   gradient=True),
    "embedding": Work([{"rows": 16384, "columns": 4096, "vocabulary": 128256}], tokens_and_table, 1,
                      lambda tokens, table: F.dropout(F.embedding(tokens, table), DROP, True),
                      definition=lambda tokens, table: F.embedding(tokens, table), dropped=DROP),
    "embedding_sum": Work([{"rows": 16384, "columns": 768, "vocabulary": 30522}], sum_of_tables, 3, embedding_sum),
    "dropout": Work(ONE, rows_and(), 1, lambda x: F.dropout(x, DROP, True), definition=lambda x: x, dropped=DROP),
    "argmax": Work([{"rows": 4096, "columns": 128256}], rows_and(), 1, lambda x: torch.argmax(x, -1), compared=pointed_to),
    "top_k": Work([{"rows": 4096, "columns": 128256, "k": 50}], rows_and_k, 1,
                  lambda x, k: torch.topk(x, k.shape[0], -1).indices, compared=pointed_to),
}
