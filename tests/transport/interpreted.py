"""What tests of Triton kernels share: they run on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

#: The interpreter runs on NumPy, which warns of infinities, and of NaN, that the kernels expect.
EXPECTED_WARNINGS = [
    pytest.mark.filterwarnings("ignore:overflow encountered in:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered in:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered in:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning"),
    # The interpreter of Triton 3.6, which needs NumPy before 2.4 for it.
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim:DeprecationWarning"),
]
