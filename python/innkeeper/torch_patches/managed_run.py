"""The patches of ``innkeeper run --managed`` and ``python -m innkeeper``, which answer scripts for CUDA."""

from __future__ import annotations

from innkeeper.torch_patches.patch import DEFAULT_TYPE, IMPORT, MANAGED_RUN, Patch

_ALL = ">=2.11"
_SCRIPTS = "tests/python/scripts/"
_CUDA = "The script says cuda and means the managed device"

MANAGED_RUN_PATCHES = [
    Patch(
        "torch.cuda.*",
        f"{_CUDA}: torch.cuda's functions answer for it, or say in one line what it cannot do.",
        _ALL,
        _SCRIPTS + "test_cuda_compat.py::test_what_torch_cuda_answers",
        MANAGED_RUN,
    ),
    Patch(
        "type(torch.cuda)",
        "torch.cuda._initialized follows the runtime's state; a module has properties by its type alone.",
        _ALL,
        _SCRIPTS + "test_cuda_state.py::test_what_initializes_cuda_starts_the_runtime_and_nothing_else_does",
        MANAGED_RUN,
    ),
    Patch(
        "torch._C.{_cuda_clearCublasWorkspaces,_cuda_getCurrentRawStream,_cuda_setDevice,_cuda_setStream,"
        "_cuda_sleep}",
        "Builds without CUDA lack these, and libraries call them.",
        _ALL,
        _SCRIPTS + "test_pytorch_semantics.py::test_a_device_that_sleeps_is_busy_by_its_own_clock",
        MANAGED_RUN,
    ),
    Patch(
        "torch.backends.cudnn.is_acceptable",
        "RNNs ask it how their weights lie; it would warn that PyTorch was built without cuDNN.",
        _ALL,
        _SCRIPTS + "test_cuda_compat.py::test_what_torch_cuda_answers",
        MANAGED_RUN,
    ),
    Patch(
        "torch.{is_autocast_enabled,set_autocast_enabled,get_autocast_gpu_dtype,set_autocast_gpu_dtype}",
        f"{_CUDA}: autocast's functions that name no device mean it.",
        _ALL,
        _SCRIPTS + "test_cuda_compat.py::test_autocast_by_all_its_names",
        MANAGED_RUN,
    ),
    Patch(
        "torch.compile",
        "Inductor would write a GPU's kernels: where the script names no backend it goes without Inductor.",
        _ALL,
        _SCRIPTS + "test_cuda_compat.py::test_compiled_functions_and_scripted_ones",
        MANAGED_RUN,
    ),
    Patch(
        "torch._functorch.config.graphsafe_rng_functionalization",
        "For CUDA, graphs are given generators that a captured graph can replay; managed ones are not so.",
        _ALL,
        "tests/python/autograd/test_checkpointing.py::"
        "test_models_of_transformers_have_the_gradients_of_none_at_full_and_half_memory",
        "torch._functorch.config, in a managed run",
    ),
    Patch(
        "torch.Tensor.{cuda,type,data_ptr,pin_memory,is_pinned,is_cuda,is_managed}",
        f"{_CUDA}: methods that name CUDA in Python or in C++ answer for it.",
        _ALL,
        _SCRIPTS + "test_cuda_compat.py::test_how_the_device_shows_itself",
        MANAGED_RUN,
    ),
    Patch(
        "torch.serialization._validate_device",
        "torch.load refuses the index of a process of torchrun's, which has one device.",
        _ALL,
        _SCRIPTS + "test_cuda_devices.py::test_a_process_of_torchruns_loads_to_the_number_that_it_has",
        MANAGED_RUN,
    ),
    Patch(
        "multiprocessing.reduction.ForkingPickler._extra_reducers[{Tensor,Parameter}]",
        "PyTorch would share the memory of what shows itself as CUDA's; a copy is sent.",
        _ALL,
        _SCRIPTS + "test_cuda_devices.py::test_tensors_are_sent_to_other_processes_as_copies",
        MANAGED_RUN,
    ),
    Patch(
        "torch.set_default_tensor_type",
        "CUDA's types are there in builds without CUDA too.",
        _ALL,
        _SCRIPTS + "test_default_type.py::test_the_default_type_is_one_of_cuda",
        MANAGED_RUN,
    ),
    Patch(
        "torch.Tensor.__new__",
        "With a CUDA type as the default, torch.Tensor(...) makes CUDA tensors.",
        _ALL,
        _SCRIPTS + "test_default_type.py::test_the_default_type_is_one_of_cuda",
        DEFAULT_TYPE,
    ),
    Patch(
        "threading.Thread.start",
        "The default type is the process's, and the default device that stands for it a thread's own.",
        _ALL,
        _SCRIPTS + "test_default_type.py::test_the_default_type_is_that_of_every_thread",
        DEFAULT_TYPE,
    ),
    Patch(
        "torch.{distributed,distributed.distributed_c10d}."
        "{new_group,new_subgroups,new_subgroups_by_enumeration,get_backend,is_nccl_available,"
        "barrier,init_process_group}",
        f"{_CUDA}: the backend nccl means the managed device's.",
        _ALL,
        _SCRIPTS
        + "test_scripts.py::test_a_script_of_two_processes_trains_by_nccl_s_name_at_60_percent_of_its_peak",
        MANAGED_RUN,
    ),
    Patch(
        "torch.autograd.profiler.profile.__init__",
        "A build without CUDA would print a stack trace for each operator whose CUDA event it cannot record.",
        _ALL,
        _SCRIPTS + "test_cuda_reports.py::test_the_profiler_leaves_cuda_s_part_out",
        MANAGED_RUN,
    ),
    Patch(
        "torch.Tensor.__cuda_array_interface__",
        "The refusal names the script's line.",
        _ALL,
        _SCRIPTS + "test_cuda_compat.py::test_what_cannot_be_mapped_says_so_with_the_scripts_line",
        MANAGED_RUN,
    ),
    Patch(
        "torch.utils.cpp_extension.{load,load_inline}",
        "Kernels of CUDA's sources read addresses, which managed tensors have none of: they are refused.",
        _ALL,
        _SCRIPTS + "test_cuda_compat.py::test_what_cannot_be_mapped_says_so_with_the_scripts_line",
        MANAGED_RUN,
    ),
    Patch(
        "sys.meta_path[innkeeper.compat.tensor_managed._Finder]",
        "import managed finds compat.tensor_managed where no package of that name is installed.",
        _ALL,
        "tests/python/device/test_tensor_managed.py::test_install_gives_the_name_where_no_such_package_is",
        MANAGED_RUN,
    ),
    Patch(
        "sys.meta_path[innkeeper.integrations.imports._Finder]",
        "Modules that are not imported yet are changed once they are: nothing is imported for a patch.",
        _ALL,
        "tests/python/libraries/test_libraries.py::test_trainer_uses_managed_after_a_plain_import",
        IMPORT,
    ),
]
