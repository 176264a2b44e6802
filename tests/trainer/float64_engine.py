"""A stand-in for an engine that computes in float64, to compare gradients to the last digits."""

from functools import cache

import torch

from npu.engines.torch_cpu import TorchCpuEngine
from npu.ledger import Product
from npu.pending_product import PendingProduct, at_once


class Float64Engine(TorchCpuEngine):
    """Products of the effective weights, which fp32 holds exactly, with float64 operands."""

    def begin(self, product: Product, matrix: str, a: torch.Tensor) -> PendingProduct:
        """As `Engine.begin`; an operand that went through fp32 on its way is an error."""
        assert a.dtype == torch.float64
        weight = self._weight(matrix)
        return at_once(lambda: a @ (weight if product == "input_gradient" else weight.t()))

    @cache  # noqa: B019  (as long as the test's engine)
    def _weight(self, matrix: str) -> torch.Tensor:
        return torch.from_numpy(self.matrices[matrix].dequantize()).double()
