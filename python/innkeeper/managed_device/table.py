"""Every public name of ``torch.cuda``, and its state on ``torch.managed``: one table, checked by a test.

- works: it exists and does what its users expect, for one device whose memory is all the nodes' memory.
- refused: it exists, and using it raises a RuntimeError with the reason.
- not applicable: it is absent, for the reason given (so that ``hasattr`` is False).
"""

from __future__ import annotations

_WORKS = """
    is_available device_count current_device set_device device device_of synchronize init is_initialized
    get_device_name get_device_properties is_bf16_supported is_tf32_supported has_half has_magma
    Stream Event StreamContext stream current_stream default_stream set_stream is_current_stream_capturing
    streams memory memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached
    max_memory_cached mem_get_info memory_snapshot memory_stats memory_stats_as_nested_dict memory_summary
    device_memory_used
    get_allocator_backend reset_peak_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated
    reset_max_memory_cached empty_cache set_per_process_memory_fraction get_per_process_memory_fraction
    random manual_seed manual_seed_all seed seed_all initial_seed
    get_rng_state get_rng_state_all set_rng_state set_rng_state_all amp ipc_collect
    BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor
    ShortTensor BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage
    DoubleStorage FloatStorage HalfStorage IntStorage LongStorage ShortStorage
"""
WORKS = frozenset(_WORKS.split())

_GRAPHS = (
    "a captured graph fixes addresses, and blocks move; capture on the real device inside innkeeper.resident"
)
_ALLOCATOR = "the engine alone gives out the nodes' memory; limit it with innkeeper.manager().set_budget"
_POINTER = "a managed address is an identity, not memory; innkeeper.resident gives the real tensor"
_SENSOR = "managed is no single GPU; `innkeeper status` shows the GPUs and their sensors"
_HANDLE = (
    "managed has no library handle of its own; inside innkeeper.resident ask torch.cuda for its current one"
)
_HOST = "host memory is a node; see innkeeper.stats()['nodes']['host']"
_KERNEL = "it compiles a kernel for CUDA pointers; call it on real tensors inside innkeeper.resident"

REFUSED = {
    "CUDAGraph": _GRAPHS,
    "graph": _GRAPHS,
    "graphs": _GRAPHS,
    "graph_pool_handle": _GRAPHS,
    "make_graphed_callables": _GRAPHS,
    "CUDAPluggableAllocator": _ALLOCATOR,
    "MemPool": _ALLOCATOR,
    "caching_allocator_disabled": _ALLOCATOR,
    "caching_allocator_enable": _ALLOCATOR,
    "change_current_allocator": _ALLOCATOR,
    "use_mem_pool": _ALLOCATOR,
    "caching_allocator_alloc": _POINTER,
    "caching_allocator_delete": _POINTER,
    "clock_rate": _SENSOR,
    "get_device_capability": _SENSOR,
    "list_gpu_processes": _SENSOR,
    "memory_usage": _SENSOR,
    "power_draw": _SENSOR,
    "temperature": _SENSOR,
    "utilization": _SENSOR,
    "current_blas_handle": _HANDLE,
    "current_solver_handle": _HANDLE,
    "ExternalStream": _HANDLE,
    "GreenContext": _HANDLE,
    "get_stream_from_external": _HANDLE,
    "host_memory_stats": _HOST,
    "host_memory_stats_as_nested_dict": _HOST,
    "reset_accumulated_host_memory_stats": _HOST,
    "reset_peak_host_memory_stats": _HOST,
    "jiterator": _KERNEL,
    "nccl": "NCCL works on CUDA pointers; use torch.distributed, or real tensors inside innkeeper.resident",
    "set_sync_debug_mode": "the engine decides when to wait; innkeeper.manager().log_moves shows moves",
    "get_sync_debug_mode": "the engine decides when to wait; innkeeper.manager().log_moves shows moves",
    "tunable": "the computing device tunes its own kernels; use torch.cuda.tunable",
}

_CUDA_ERRORS = "CUDA's own error codes; failures of managed are Python exceptions"
_CUDA_BUILD = "it describes PyTorch's CUDA build"

NOT_APPLICABLE = {
    "CudaError": _CUDA_ERRORS,
    "DeferredCudaCallError": _CUDA_ERRORS,
    "check_error": _CUDA_ERRORS,
    "cudaStatus": _CUDA_ERRORS,
    "cudart": "managed has no CUDA runtime of its own; torch.cuda has it",
    "get_arch_list": _CUDA_BUILD,
    "get_gencode_flags": _CUDA_BUILD,
    "can_device_access_peer": "there is one managed device, so it has no peer",
    "default_generators": "a random stream belongs to an experiment or the process; see manual_seed",
    "nvtx": "it marks ranges in NVIDIA's profiler; torch.cuda.nvtx works beside managed",
    "profiler": "it drives NVIDIA's profiler; torch.cuda.profiler works beside managed",
    "sparse": "PyTorch's old names of sparse types; use torch.sparse_coo_tensor(..., device='managed')",
}
