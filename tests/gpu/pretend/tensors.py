"""Tensors that say they are on a GPU, and what a GPU makes of every operation on them."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .device import DEVICE, Allocation, place
from .kernels import ATOMIC, FREE, KERNELS, WAITS

MIXED = "Expected all tensors to be on the same device, but found at least two devices, "
INDEXING = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}


class PretendTensor(Tensor):
    """values: the CPU tensor that computes. gpu: where it says it is. allocation: the block of memory it lies in."""

    values: Tensor
    gpu: torch.device
    allocation: Allocation

    @staticmethod
    def __new__(cls, values: Tensor, gpu: torch.device) -> "PretendTensor":
        self = Tensor._make_wrapper_subclass(
            cls, values.size(), strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype,
            device=gpu, requires_grad=False,
        )  # fmt: skip
        self.values, self.gpu = values, gpu
        storage = values.untyped_storage()
        allocation = DEVICE.blocks.get(storage.data_ptr()) if storage.data_ptr() else None
        if allocation is None:
            allocation = Allocation(storage.nbytes(), DEVICE.recording(gpu.index))
            if storage.data_ptr():
                DEVICE.blocks[storage.data_ptr()] = allocation
        self.allocation = allocation
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy

    def __repr__(self) -> str:
        return f"pretend({self.values!r})"

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.clone()


class PretendGPU(TorchDispatchMode):
    """Inside, new tensors may be on the device; of one thread."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


def on_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def gpu_named(device: Any) -> torch.device:
    """A GPU with its number; "cuda" is the thread's current one."""
    number = torch.device(device).index
    return torch.device("cuda", DEVICE.thread.gpu if number is None else number)


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """An operation as a GPU does it, or refuses it."""
    name = func._schema.name
    leaves, spec = tree_flatten((args, kwargs))
    ours = [a for a in leaves if isinstance(a, PretendTensor)]
    plain = [a for a in leaves if type(a) in (Tensor, torch.nn.Parameter)]
    new = on_gpu(kwargs.get("device"))
    if name == "prim::device":
        return args[0].gpu
    if name == "aten::_pin_memory" and not ours:
        return pinned(args[0])
    if not (ours or new) or any(p.device.type == "meta" for p in plain):
        return func(*args, **kwargs)
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise RuntimeError(f"{name} draws on the device, whose stream is not that of the CPU")
    if name == "aten::_to_copy" and (between := _copied(func, args, kwargs)) is not None:
        return between
    if name == "aten::copy_" and _place(args[0]) != _place(args[1]):
        return _copied_into(func, args, kwargs)
    _refuse_mixed(func, name, args, ours, plain, new)
    gpu = ours[0].gpu if ours else gpu_named(kwargs["device"])
    _wait(name, args, kwargs, gpu)

    raw = [a.values if isinstance(a, PretendTensor) else a for a in leaves]
    raw = [torch.device("cpu") if isinstance(a, torch.device) and a.type == "cuda" else a for a in raw]
    raw_args, raw_kwargs = tree_unflatten(raw, spec)
    changed = _changed(func, args, kwargs)
    if (recording := DEVICE.recording(gpu.index)) is None:
        out = func(*raw_args, **raw_kwargs)
    else:
        out = recording.run(func, raw_args, raw_kwargs, ours, changed)
    outs = [o for o in tree_flatten(out)[0] if isinstance(o, Tensor)]
    _count(name, outs, ours, changed)
    if torch.Tag.inplace_view in func.tags:  # unsqueeze_ and its like: the shape that is seen from outside changes too
        with torch._C._DisableTorchDispatch():
            func(*args, **kwargs)
        return args[0]
    returned = func._schema.returns
    if len(changed) == len(outs) == 1 and returned and returned[0].alias_info:
        return changed[0]
    known = {id(c.values): c for c in changed if isinstance(c, PretendTensor)}
    return tree_map(lambda o: known.get(id(o)) or PretendTensor(o, gpu) if isinstance(o, Tensor) else o, out)


PINNED: set[int] = set()


def pinned(tensor: Tensor) -> Tensor:
    """A copy in page-locked memory, from which a copy to the device need not be waited for."""
    copy = tensor.clone()
    PINNED.add(copy.data_ptr())
    return copy


def _copied(func: Any, args: Any, kwargs: Any) -> Tensor | None:
    """The copy of a tensor on the other device; None for one that stays."""
    source, target = args[0], kwargs.get("device")
    if target is None or _place(source) == (gpu_named(target) if on_gpu(target) else None):
        return None
    if isinstance(source, PretendTensor) and not on_gpu(target):
        DEVICE.wait("copy to the CPU", source.gpu.index)
        return func(source.values, **{**kwargs, "device": torch.device("cpu")})
    gpu, values = gpu_named(target), source.values if isinstance(source, PretendTensor) else source
    if values is source and (not kwargs.get("non_blocking") or source.data_ptr() not in PINNED):
        DEVICE.wait("copy from the CPU", gpu.index)
    DEVICE.launches["aten::_to_copy"] += 1
    DEVICE.copies += values is source
    rest = {name: value for name, value in kwargs.items() if name not in ("device", "non_blocking")}
    return PretendTensor(func(values, **rest).clone(), gpu)


def _place(value: Any) -> torch.device | None:
    """The GPU of a tensor; None on the CPU."""
    return value.gpu if isinstance(value, PretendTensor) else None


def _copied_into(func: Any, args: Any, kwargs: Any) -> Tensor:
    """``place.copy_(source)`` between the devices."""
    to, source, asynchronous = args[0], args[1], kwargs.get("non_blocking") or (args[2:] and args[2])
    if not isinstance(to, PretendTensor):
        DEVICE.wait("copy to the CPU", source.gpu.index)
    elif isinstance(source, PretendTensor):
        pass  # from one GPU to another, for which the host does not wait
    elif not asynchronous or source.data_ptr() not in PINNED:
        DEVICE.wait("copy from the CPU", to.gpu.index)
    elif DEVICE.recording(to.gpu.index) is not None:
        raise RuntimeError("a recording that copies from the CPU reads that memory again in every replay")
    DEVICE.launches["aten::copy_"] += 1
    DEVICE.copies += not isinstance(source, PretendTensor)
    raw = [t.values if isinstance(t, PretendTensor) else t for t in (to, source)]
    func(*raw)
    return to


def _refuse_mixed(func: Any, name: str, args: Any, ours: list[Tensor], plain: list[Tensor], new: bool) -> None:
    """Raise for tensors of two devices in one operation, as CUDA's kernels do."""
    if len({t.gpu for t in ours}) > 1:
        raise RuntimeError(f"{MIXED}{' and '.join(sorted({str(t.gpu) for t in ours}))}! [{name}]")
    if plain and ours:
        if name in INDEXING and not isinstance(args[0], PretendTensor):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        if name in INDEXING:
            if any(type(i) is Tensor for i in args[1] if i is not None):
                DEVICE.wait("index on the CPU", ours[0].gpu.index)
            plain = [a for a in args[2:] if type(a) is Tensor]
        numbers_do = torch.Tag.pointwise in func.tags or name in NUMBERS_OF_THE_HOST
        if any(p.ndim for p in plain) or (plain and not numbers_do):
            raise RuntimeError(f"{MIXED}cuda and cpu! [{name}]")
        if plain and func._schema.is_mutable and type(args[0]) is Tensor:
            raise RuntimeError(f"{MIXED}cuda and cpu! [{name} writes to the CPU]")
    elif plain and new and not name.endswith("_like") and not name.startswith("aten::new_"):
        raise RuntimeError(f"{MIXED}cuda and cpu! [{name}]")


# Operations beside the pointwise ones that take a number on the CPU.
NUMBERS_OF_THE_HOST = {"aten::masked_fill", "aten::masked_fill_", "aten::fill_", "aten::index_fill_", *INDEXING}


def _wait(name: str, args: Any, kwargs: Any, gpu: torch.device) -> None:
    if name in WAITS and not (name == "aten::repeat_interleave" and kwargs.get("output_size") is not None):
        DEVICE.wait(WAITS[name], gpu.index)
    elif name in INDEXING and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
        if name == "aten::index" or args[2].numel() != 1:  # else it is a masked_fill
            DEVICE.wait("boolean index", gpu.index)


def _changed(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that an operation writes to."""
    if not func._schema.is_mutable:
        return []
    changed: list[Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            changed += [v for v in tree_flatten(value)[0] if isinstance(v, Tensor)]
    return changed


def _count(name: str, outs: list[Tensor], ours: list[Any], changed: list[Tensor]) -> None:
    if name in FREE or (outs and all(o.numel() == 0 for o in outs)):
        return
    if outs and not changed:
        inputs = {t.values.untyped_storage().data_ptr() for t in ours}
        if all(o.untyped_storage().data_ptr() in inputs for o in outs):
            return  # views
    DEVICE.launches[name] += max(1, -(-len(ours) // 128)) if name == "aten::cat" else KERNELS.get(name, 1)
    if name in ATOMIC:
        DEVICE.atomic[name, place()] += 1
