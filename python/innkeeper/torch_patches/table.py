"""The table of patches: each change to PyTorch, with its reason, and the test that fails without it."""

from __future__ import annotations

from innkeeper.torch_patches.libraries import LIBRARY_PATCHES
from innkeeper.torch_patches.managed_run import MANAGED_RUN_PATCHES
from innkeeper.torch_patches.patch import COMPILE, INDEX_PER_NODE, Patch, declare
from innkeeper.torch_patches.process_settings import SETTERS

_ALL = ">=2.11"  # Each version that the package can be built for; _register.OLDEST_TORCH.
_TESTS = "tests/python/"

_REGISTRATION = [
    Patch(
        "torch.utils.backend_registration.*",
        "PyTorch's own call gives the slot for out-of-tree devices the name managed.",
        _ALL,
        _TESTS + "device/test_import.py::test_registers_the_device_once",
    ),
    Patch(
        "torch._C.{_autograd.DeviceType,_profiler.ProfilerActivity}.*",
        "PyTorch's own call for the device's name gives its enumerations a member and a text for it.",
        _ALL,
        _TESTS + "device/test_import.py::test_registers_the_device_once",
    ),
    Patch(
        "torch.managed",
        "PyTorch's own call makes managed_device the device's module.",
        _ALL,
        _TESTS + "device/test_import.py::test_registers_the_device_once",
    ),
    Patch(
        "torch.*.{is_managed,managed}",
        "PyTorch's own call gives tensors, storages and modules methods of the device's name.",
        _ALL,
        _TESTS + "device/test_import.py::test_registers_the_device_once",
    ),
    Patch(
        "torch.Tensor.{cuda,pin,unpin,pinned}",
        "Programs of the predecessor call these on every tensor; cuda() keeps a managed tensor managed.",
        _ALL,
        _TESTS + "device/test_managed_tensor.py::test_every_tensor_has_the_verbs",
    ),
    Patch(
        "torch.distributed.distributed_c10d.Backend.{_plugins[INNKEEPER],INNKEEPER}",
        "PyTorch's own call registers the c10d backend of the device.",
        _ALL,
        _TESTS + "distributed/test_distributed.py::test_collectives_give_what_gloo_gives",
    ),
    Patch(
        "torch.distributed.distributed_c10d.Backend."
        "{backend_list,backend_type_map,backend_capability,default_device_backend_map}[*]",
        "The same call keeps the backend's name, kind and devices in these books.",
        _ALL,
        _TESTS + "distributed/test_distributed.py::test_collectives_give_what_gloo_gives",
    ),
    Patch(
        "dispatcher.*PrivateUse1[*]",
        "Kernels of the device's own dispatch keys: the backend itself.",
        _ALL,
        _TESTS + "device/test_everyday.py::test_it_gives_the_bits_of_the_cpu",
    ),
    Patch(
        "dispatcher.{CPU,Meta}[innkeeper::compiled]",
        "The package's own operator, by which Inductor's kernels run.",
        _ALL,
        _TESTS + "compile/test_inductor.py::"
        "test_training_has_the_bits_of_the_cpus_compiled_graphs_at_a_budget_below_its_peak",
    ),
    Patch(
        "dispatcher.{Conjugate,Negative}[aten::{_copy_from,_copy_from_and_resize}]",
        "A copy resolves a conjugated or negated view itself; the keys' fallbacks would copy without end.",
        _ALL,
        _TESTS + "device/test_lazy_views.py::test_zeros_keep_their_signs",
        upstream="fallthrough kernels of _copy_from for both keys, as copy_ has them",
    ),
]

_DEVICE_NAMES = [
    Patch(
        "torch._tensor_str._tensor_str",
        "Printing runs a dozen operators on the device; a list of devices decides that a copy is printed.",
        _ALL,
        _TESTS + "memory/test_no_data.py::test_what_is_read_is_zeros",
        upstream="a question to the device's module in place of the list of types in _tensor_str",
    ),
    Patch(
        "torch.Tensor.__dlpack_device__",
        "DLPack's type of the device is looked up under a name that the slot has before it is named.",
        _ALL,
        _TESTS + "distributed/test_processes.py::test_from_dlpack_shares_the_memory",
        upstream="torch._C._get_privateuse1_backend_name() in Tensor.__dlpack_device__",
    ),
    Patch(
        "torch.Tensor.__cuda_array_interface__",
        "The error names what gives CuPy and Numba a managed tensor's memory.",
        _ALL,
        _TESTS + "distributed/test_processes.py::test_a_use_of_cudas_addresses_names_what_gives_them",
    ),
    Patch(
        "torch.nn.modules.linear_cross_entropy_options.LinearCrossEntropyOptions._adjust",
        "It chooses how to accumulate by the device's type, and knows two.",
        ">=2.13",
        _TESTS + "device/test_composed_kernels.py::test_linear_cross_entropy_accumulates_as_on_the_cpu",
        upstream="a hook for out-of-tree devices beside the two types in _adjust",
    ),
    Patch(
        "torch.nn.{DataParallel.__init__,DataParallel.forward,parallel.data_parallel}",
        "DataParallel numbers an accelerator's devices; the one managed device is split over its nodes.",
        _ALL,
        _TESTS + "distributed/test_data_parallel.py::test_trains_to_the_bits_of_the_parts_one_after_another",
        upstream="DataParallel asks the module's device for its replicas",
    ),
    Patch(
        "torch.nn.parallel.data_parallel.{data_parallel,_get_available_device_type}",
        "A module on another device is split as without the package, though managed is the accelerator.",
        _ALL,
        _TESTS + "distributed/test_data_parallel.py::test_another_device_is_as_without_us",
        upstream="_get_available_device_type asks where the module is",
    ),
    Patch(
        "torch.nn.attention.flex_attention.{_validate_device,_apply_kernel_options}",
        "flex_attention has a list of the devices that it takes.",
        _ALL,
        _TESTS + "compile/test_inductor.py::test_flexible_attention",
        upstream="the device's registration says whether its kernels have a backward",
    ),
    Patch(
        "torch.{UntypedStorage.share_memory_,UntypedStorage.is_shared}",
        "PyTorch takes every device's memory but the CPU's for shared, so processes would train copies.",
        _ALL,
        _TESTS + "distributed/test_processes.py::test_memory_is_not_shared_and_says_so",
        upstream="share_memory_() and is_shared() ask the device's module",
    ),
    Patch(
        "copyreg.dispatch_table[Tensor]",
        "Sparse managed tensors are pickled by their parts, not by a copy on the CPU.",
        _ALL,
        _TESTS + "device/test_pickle.py::test_a_tensor_is_what_it_is_on_the_cpu",
        upstream="Tensor.__reduce_ex__ treats an out-of-tree device's sparse tensors as CUDA's",
    ),
    Patch(
        "multiprocessing.reduction.ForkingPickler._extra_reducers[UntypedStorage]",
        "Managed memory belongs to one process: another is sent a copy.",
        _ALL,
        _TESTS + "distributed/test_processes.py::test_a_queue_carries_copies_that_share_among_themselves",
        upstream="a hook of the device's module in reduce_storage",
    ),
    Patch(
        "torch.distributed.{barrier,init_process_group}",
        "A device id or index of another accelerator is refused, and managed is the accelerator.",
        _ALL,
        _TESTS + "distributed/test_distributed.py::test_a_group_may_be_bound_to_a_device",
        upstream="the check of device_id in init_process_group allows devices of the group's backends",
    ),
    Patch(
        "torch.distributed.distributed_c10d.{barrier,init_process_group}",
        "The same, in the module that torch.distributed has the functions from.",
        _ALL,
        _TESTS + "distributed/test_distributed.py::test_a_group_may_be_bound_to_a_device",
        upstream="the check of device_id in init_process_group allows devices of the group's backends",
    ),
    Patch(
        "torch.distributed.distributed_c10d._new_process_group_helper",
        "A group makes its backends from a list of devices that out-of-tree ones do not join.",
        _ALL,
        _TESTS + "distributed/test_distributed.py::test_collectives_give_what_gloo_gives",
        upstream="register_backend(devices=...) joins groups that name no backend",
    ),
    Patch(
        "torch.distributed.tensor._random._PhiloxState",
        "Distributed tensors read a random state as Philox's seed and offset; a managed one is neither.",
        _ALL,
        _TESTS + "distributed/test_distributed.py::test_replicas_draw_the_same_and_shards_their_own",
        when="torch.distributed.tensor._random",
        upstream="the device's generator says how to derive a shard's state",
    ),
]

_OPERATORS = [
    Patch(
        "torch.library.Library.{define,impl}",
        "An operator gets kernels at any time; after each the device looks which one it should run.",
        _ALL,
        _TESTS + "libraries/test_custom_operators.py::test_however_it_is_written",
        upstream="c10's OpRegistrationListener tells of kernels, not of operators alone",
    ),
    Patch(
        "torch.ops.load_library",
        "A loaded library has registered kernels in C++, which tells no listener.",
        _ALL,
        _TESTS + "libraries/test_custom_operators.py::test_those_of_a_compiled_library_that_is_loaded_later",
        upstream="c10's OpRegistrationListener tells of kernels, not of operators alone",
    ),
    Patch(
        "importlib.machinery.ExtensionFileLoader.exec_module",
        "A compiled module of Python's registers kernels while it is imported, and nothing of PyTorch's "
        "runs then: the loader is the only place that each such import passes.",
        _ALL,
        _TESTS + "libraries/test_custom_operators.py::test_those_of_a_compiled_library_that_is_loaded_later",
        upstream="c10's OpRegistrationListener tells of kernels, not of operators alone",
    ),
    Patch(
        "torch._refs.{native_group_norm,native_layer_norm}.__code__",
        "These decompositions compare device.type with the constant 'cpu' in the middle of their code, to "
        "sum up as the CPU's kernels do; the constant becomes a str that is equal to 'managed' too where "
        "the host computes. No function that they call, and no name, could be replaced instead.",
        _ALL,
        _TESTS + "device/test_same_kernels.py::test_decompositions_of_norms",
        upstream="the decompositions ask a function of the device's, such as torch._prims_common.is_cpu_like",
    ),
    Patch(
        "torch._decomp.decompositions.native_batch_norm_helper.__code__",
        "The same comparison with the constant 'cpu', which decides the dtype of kept statistics.",
        _ALL,
        _TESTS + "device/test_same_kernels.py::test_decompositions_of_norms",
        upstream="the decompositions ask a function of the device's, such as torch._prims_common.is_cpu_like",
    ),
    Patch(
        "torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS[AutocastPrivateUse1]",
        "Higher-order operators pass by autocast of the devices in this list; ours is not in it.",
        _ALL,
        _TESTS + "autograd/test_higher_order.py::test_autocast_passes_into_them",
        upstream="AutocastPrivateUse1 in the list",
    ),
    Patch(
        "torch.*.non_fallthrough_keys",
        "Higher-order operators that were made before the list had the key are told of it.",
        _ALL,
        _TESTS + "autograd/test_higher_order.py::test_autocast_passes_into_them",
        upstream="AutocastPrivateUse1 in the list",
    ),
    Patch(
        "torch.*.py_kernels[AutocastPrivateUse1]",
        "flex_attention casts by a kernel for CUDA's autocast, which this device's autocast runs too.",
        _ALL,
        _TESTS + "autograd/test_higher_order.py::test_autocast_passes_into_them",
        upstream="flex_attention registers its autocast kernel for PrivateUse1",
    ),
    Patch(
        "torch._ops.HigherOrderOperator.py_impl",
        "A higher-order operator that is made later gets the same kernel.",
        _ALL,
        _TESTS + "autograd/test_higher_order.py::test_autocast_passes_into_them",
        upstream="AutocastPrivateUse1 in the list",
    ),
    Patch(
        "torch._prims.rng_prims.{run_and_save_rng_state,run_with_rng_state}.py_kernels[BackendSelect]",
        "Compiled checkpoints ask for a device's random state by a dict of four types.",
        _ALL,
        _TESTS + "autograd/test_checkpointing.py::test_each_form_of_checkpointing_has_the_gradients_of_none",
        upstream="torch.get_device_module(device).get_rng_state() in rng_prims",
    ),
    Patch(
        "torch._prims.rng_prims.run_and_save_rng_state.python_key_table[ProxyTorchDispatchMode]"
        ".__closure__[impl_backend_select]",
        "The function that traces this operator calls the selecting function by a variable of its closure, "
        "not by the operator's table: the variable is the only reference to replace.",
        _ALL,
        _TESTS + "autograd/test_checkpointing.py::test_each_form_of_checkpointing_has_the_gradients_of_none",
        upstream="torch.get_device_module(device).get_rng_state() in rng_prims",
    ),
    Patch(
        "torch._C.{" + ",".join(SETTERS) + "}",
        "These settings decide bits; results that are to be recomputed are made before one changes.",
        _ALL,
        _TESTS
        + "memory/test_recompute.py::test_onednn_is_as_it_was_then_and_what_python_may_own_alone_is_left",
        upstream="a callback of at::Context before a setting changes",
    ),
    Patch(
        "torch.backends.ContextProp.__set__",
        "Attributes such as torch.backends.mkldnn.enabled hold the setters that they call.",
        _ALL,
        _TESTS
        + "memory/test_recompute.py::test_onednn_is_as_it_was_then_and_what_python_may_own_alone_is_left",
        upstream="a callback of at::Context before a setting changes",
    ),
    Patch(
        "torch.{autograd,autograd.graph}._engine_run_backward",
        "The error says which CPU tensor needs a gradient that autograd cannot move back.",
        _ALL,
        _TESTS + "device/test_mixed_modes.py::"
        "test_where_a_gradient_cannot_be_moved_back_the_error_says_which_and_what_to_do",
    ),
    Patch(
        "torch._subclasses.fake_tensor.FakeTensor._find_common_device",
        "Tracers refuse CPU tensors beside managed ones, which operators of the device move.",
        _ALL,
        _TESTS + "device/test_mixed_modes.py::test_without_data_the_result_is_managed",
        upstream="an operator's fake kernel for the device decides, as the real one does",
    ),
    Patch(
        "torch._TorchCompileInductorWrapper.__call__",
        "Inductor decides by a device's type in a hundred places; the graphs that it is given say cpu:1.",
        _ALL,
        _TESTS + "compile/test_inductor.py::"
        "test_training_has_the_bits_of_the_cpus_compiled_graphs_at_a_budget_below_its_peak",
        upstream="out-of-tree devices may name the built-in device whose kernels Inductor writes",
    ),
    Patch(
        "torch._inductor.compile_fx.compile_fx_aot",
        "AOTInductor's packages hold weights of their own, which no engine can move: they are refused.",
        _ALL,
        _TESTS + "compile/test_inductor.py::test_packages_are_refused_in_one_line_and_made_for_other_devices",
        when="torch._inductor.compile_fx",
    ),
    Patch(
        "torch._inductor.codegen.common.device_codegens[*]",
        "The label's device schedules and writes kernels for managed graphs while one is compiled.",
        _ALL,
        _TESTS + "compile/test_inductor.py::test_other_devices_compile_as_without_us",
        when=COMPILE,
        upstream="out-of-tree devices may name the built-in device whose kernels Inductor writes",
    ),
    Patch(
        "torch._inductor.codegen.cpp_template_kernel.CppTemplateKernel."
        "{define_buffer,define_stack_allocated_buffer}",
        "A template's local buffers are on the constant 'cpu', not on the graph's device.",
        _ALL,
        _TESTS + "compile/test_inductor.py::test_templates_that_are_tuned",
        when=COMPILE,
        upstream="the buffers take the device of the template's output",
    ),
]

_COPIES = [
    Patch(
        "torch._C.{_broadcast,_broadcast_out,_broadcast_coalesced,_scatter,_scatter_out,_gather,_gather_out}",
        "Functions behind torch.nn.parallel are in CUDA's builds alone, and take CUDA's tensors.",
        _ALL,
        _TESTS + "scripts/test_cuda_devices.py::test_a_device_for_each_node_by_configure",
        when=INDEX_PER_NODE,
        upstream="torch/csrc/cuda/comm.cpp by torch.accelerator",
    ),
    Patch(
        "torch.cuda.nccl.is_available",
        "reduce_add asks it of every tensor, and is answered with a warning.",
        _ALL,
        _TESTS + "scripts/test_cuda_devices.py::test_sums_over_devices_are_made_without_a_warning",
        when=INDEX_PER_NODE,
        upstream="reduce_add asks only of CUDA's tensors",
    ),
]

PATCHES: tuple[Patch, ...] = (
    *_REGISTRATION,
    *_DEVICE_NAMES,
    *_OPERATORS,
    *_COPIES,
    *MANAGED_RUN_PATCHES,
    *LIBRARY_PATCHES,
)
"""All patches, by subject."""

declare(list(PATCHES))
