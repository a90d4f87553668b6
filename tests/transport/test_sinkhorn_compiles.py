"""The Sinkhorn kernels compile for a GPU without one, as the kernels of sum pooling do."""

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
from sumpool.transport.sinkhorn import kernels, ops


def dtype_of(name):
    if name == "mask_ptr":
        return "*i1"
    if name.endswith("_ptr"):
        return "*fp32"
    return "fp32" if name == "log_m" else "i32"


def compile_kernel(function, masked, n, m):
    tile = ops.tile_of(n, m)
    constants = {"HAS_MASK": masked, "M": m, "BLOCK_N": tile.rows, "BLOCK_M": tile.columns}
    if not masked:
        constants["mask_ptr"] = None
    # Triton takes a 1 among integers for a constant.
    constants |= {"n": 1, "iterations": 1} if n == 1 else {}
    signature = {
        name: "constexpr" if name in constants else dtype_of(name) for name in function.arg_names
    }
    index = {(function.arg_names.index(name),): v for name, v in constants.items()}
    target = GPUTarget("cuda", 90, 32)
    options = {"num_warps": tile.warps, "num_stages": 1}
    triton.compile(ASTSource(function, signature, index), target=target, options=options)


count = 0
for function in (kernels.sinkhorn_forward, kernels.sinkhorn_backward):
    for case in CASES:
        compile_kernel(function, *case)
        count += 1
print("compiled", count)
"""
# Small tiles, as what is checked does not depend on their size, and those with a side of one.
CASES = [(True, 40, 6), (False, 1, 8), (True, 16, 1)]


@pytest.mark.process
def test_kernels_compile_for_a_gpu() -> None:
    assert compiled(PROGRAM, CASES) == 6
