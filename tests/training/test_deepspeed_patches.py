"""Corrections of DeepSpeed that need no training: its linear layer of ZeRO-3."""

import pytest
import torch

from hpcddm.training import deepspeed_patches


@pytest.fixture(scope="module")
def linear_of_zero3():
    deepspeed_patches.import_deepspeed(torch.device("cpu"))
    from deepspeed.runtime.zero.linear import LinearFunctionForZeroStage3

    return LinearFunctionForZeroStage3.apply


@pytest.mark.parametrize("shape", [(64, 24), (8, 8, 24)], ids=["rows", "sequences"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_adds_the_bias_before_it_rounds_and_has_torchs_gradients(linear_of_zero3, dtype, shape):
    draw = torch.Generator().manual_seed(0)
    sizes = (shape, (16, 24), (16,))
    values, weight, bias = (torch.randn(size, generator=draw).to(dtype).requires_grad_() for size in sizes)
    inputs, expected = (values, weight, bias), torch._C._nn.linear(values, weight, bias)
    upstream = torch.randn(expected.shape, generator=draw).to(dtype)
    output = linear_of_zero3(*inputs)
    assert torch.equal(output, expected)
    wanted = torch.autograd.grad(expected, inputs, upstream)
    for gradient, other in zip(torch.autograd.grad(output, inputs, upstream), wanted, strict=True):
        assert torch.equal(gradient, other)
