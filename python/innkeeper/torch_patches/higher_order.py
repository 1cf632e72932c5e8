"""Higher-order operators (``torch.cond``, ``scan``, ``while_loop``) under the device's autocast.

PyTorch has them pass by autocast on the devices that it lists: the operators inside cast. One that casts by
itself, as ``flex_attention``, has a kernel for CUDA's autocast, which asks for the device of its operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard

from innkeeper.torch_patches.patch import apply, put
from torch import _ops

_OURS = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
_CUDAS = DispatchKey.AutocastCUDA


def install() -> None:
    """Has all of them know this device's autocast, and those that are made later. Once."""
    keys = _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
    apply(
        "torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS[AutocastPrivateUse1]",
        lambda: keys.append(_OURS),
    )
    operator = _ops.HigherOrderOperator
    register = operator.py_impl

    @functools.wraps(register)
    def also_ours(self: Any, key: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        decorate = register(self, key)
        if key != _CUDAS:
            return decorate

        def decorate_both(kernel: Callable[..., Any]) -> Callable[..., Any]:
            _cast_by(self, register, kernel)
            return decorate(kernel)

        return decorate_both

    put("torch._ops.HigherOrderOperator.py_impl", also_ours)
    for each in _ops._higher_order_ops.values():
        if _CUDAS in each.py_kernels:
            _cast_by(each, register, each.py_kernels[_CUDAS])
    others = [each for each in _ops._higher_order_ops.values() if _CUDAS not in each.py_kernels]
    apply("torch.*.non_fallthrough_keys", lambda: [each.fallthrough(_OURS) for each in others])


def _cast_by(operator: Any, register: Callable[..., Any], kernel: Callable[..., Any]) -> None:
    """Gives the operator a kernel for this device's autocast, which is that of CUDA's."""

    def cast(*args: Any, **kwargs: Any) -> Any:
        with _ExcludeDispatchKeyGuard(DispatchKeySet(_OURS)):
            return kernel(*args, **kwargs)

    def give() -> None:
        operator.non_fallthrough_keys = operator.non_fallthrough_keys.add(_OURS)
        register(operator, _OURS)(cast)

    apply("torch.*.py_kernels[AutocastPrivateUse1]", give)
