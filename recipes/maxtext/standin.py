"""A stand-in for Transformer Engine's compiled JAX extension: enum names, inert answers, and no custom call.

Transformer Engine's Python code imports `transformer_engine_jax` even where NVTE_JAX_CUSTOM_CALLS=false keeps it from
calling anything in it. Whatever is called all the same raises, so that nothing is computed by a stand-in.
"""

from __future__ import annotations

import itertools
import types
from typing import Any

NAME = "transformer_engine_jax"
# what is asked while modules are imported and recipes chosen; the capability is Blackwell's, so that recipes are made
_ANSWERS: dict[str, Any] = {
    "registrations": {},
    "get_device_compute_capability": 100,
    "get_cublasLt_version": 130000,
    "get_cuda_version": 13000,
    "get_cudnn_version": 91900,
    "get_num_compute_streams": 4,
    "nvte_built_with_cublasmp": False,
    "get_grouped_gemm_setup_workspace_size": 0,
    "get_cgemm_num_max_streams": 0,
}
_ABSENT = "get_ep_instance_state"  # probed for with hasattr


class _Members(type):
    """A class whose attributes come into being as members when they are first named."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        member = cls(name, next(cls.numbers))
        setattr(cls, name, member)
        return member


def _enumeration(name: str) -> type:
    """An enum of the extension: members compare by name, and have a number."""

    def made(self: Any, member: str, value: int) -> None:
        self.name, self.value = member, value

    return _Members(
        name,
        (),
        {
            "numbers": itertools.count(),
            "__init__": made,
            "__int__": lambda self: self.value,
            "__index__": lambda self: self.value,
            "__eq__": lambda self, other: type(other) is type(self) and other.name == self.name,
            "__hash__": lambda self: hash((name, self.name)),
            "__repr__": lambda self: f"{name}.{self.name}",
        },
    )


class StandIn(types.ModuleType):
    """The module itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", _ABSENT)):
            raise AttributeError(name)
        value: Any
        if name[0].isupper():
            value = _enumeration(name)
        elif name in _ANSWERS:
            answer = _ANSWERS[name]

            def value(*_args: Any, **_named: Any) -> Any:
                return answer
        else:

            def value(*_args: Any, **_named: Any) -> Any:
                raise RuntimeError(f"{NAME}.{name} was called, and only its stand-in is here")

        setattr(self, name, value)
        return value
