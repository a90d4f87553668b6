"""The kernels compile for a GPU without one: the interpreter does not check types or limits."""

from __future__ import annotations

import pytest

from transport.ahead_of_time import compiled

pytest.importorskip("triton", reason="the fused kernels need Triton")

# Compiles for sm_90 down to machine code, which needs no driver.
PROGRAM = """
import warnings
warnings.simplefilter("ignore")
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
from sumpool.transport.fused import backward, forward, ops

KERNELS = {
    "pool_image": (forward.pool_image, ops._forward_blocks),
    "tile_log_sums": (forward.tile_log_sums, ops._forward_blocks),
    "solve_image": (forward.solve_image, ops._forward_blocks),
    "tile_sums": (forward.tile_sums, ops._forward_blocks),
    "total_sums": (forward.total_sums, ops._forward_blocks),
    "tile_gradients": (backward.tile_gradients, lambda *s: ops._backward_blocks(*s, few=False)),
    "prototype_gradient": (backward.prototype_gradient, ops._forward_blocks),
}


def dtype_of(name, features):
    if name == "mask_ptr":
        return "*i1"
    if name.endswith("_ptr"):
        return f"*{features}" if name in ("f_ptr", "df_ptr", "embedding_ptr") else "*fp32"
    return "fp32" if name in ("mu", "rest", "eps") else "i32"


def compile_kernel(function, flags, blocks, features):
    constants = {name: flags for name in function.arg_names if name.startswith(("HAS_", "WANT_"))}
    constants |= {
        "BACKGROUND": flags, "BLOCK_N": blocks.rows, "BLOCK_ALL": blocks.features,
        "BLOCK_M": blocks.prototypes, "BLOCK_D": blocks.channels, "BLOCK": 128, "BLOCK_G": 16,
        "PRECISION": "tf32x3", "ROUGH": "tf32",
    }
    if not flags:
        optional = ("mask_ptr", "mu_ptr", "eps_ptr", "ge_ptr", "gw_ptr", "gz_ptr")
        constants |= {name: None for name in optional}
    constants = {name: v for name, v in constants.items() if name in function.arg_names}
    signature = {
        name: "constexpr" if name in constants else dtype_of(name, features)
        for name in function.arg_names
    }
    index = {(function.arg_names.index(name),): v for name, v in constants.items()}
    target = GPUTarget("cuda", 90, 32)
    options = {"num_warps": blocks.warps, "num_stages": 1}
    triton.compile(ASTSource(function, signature, index), target=target, options=options)


count = 0
for name, (function, choose) in KERNELS.items():
    for flags, (n, m, d), features in CASES:
        compile_kernel(function, flags, choose(n, m, d), features)
        count += 1
print("compiled", count)
"""
# Small tiles: what is checked does not depend on their size, the time to compile does.
CASES = [(True, (16, 16, 16), "fp32"), (False, (40, 16, 16), "bf16")]


@pytest.mark.process
def test_kernels_compile_for_a_gpu() -> None:
    assert compiled(PROGRAM, CASES) == 14
