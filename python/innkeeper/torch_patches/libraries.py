"""The patches of libraries, which the adapters in ``integrations`` make when a library is imported.

Each adapter's text names the change to the library that would end it.
"""

from __future__ import annotations

from innkeeper.torch_patches.patch import Patch

_ALL = ">=2.11"
_TESTS = "tests/python/libraries/"
_HALF = _TESTS + "test_libraries.py::test_trainer_and_accelerate_take_half_precision"
_RESUMED = _TESTS + "test_libraries.py::test_a_run_that_is_taken_up_with_dropout_goes_on_as_it_would_have"
_MAPS = _TESTS + "test_libraries.py::test_files_of_safetensors_and_device_maps_go_to_managed"
_GENERATES = _TESTS + "test_libraries.py::test_offloaded_caches_and_continuous_batching_generate_on_managed"
_PIPELINES = _TESTS + "test_libraries.py::test_pipelines_use_managed_and_one_on_the_cpu_is_said_once"
_CHOSEN = _TESTS + "test_lightning.py::test_what_a_script_chooses"
_ADDRESSES = _TESTS + "test_cuda_arrays.py::test_a_managed_tensor_as_argument_names_what_has_its_memory"
_TRUE = "torch.accelerator in place of a list of vendors"


def _of(module: str, names: str, why: str, test: str, upstream: str = _TRUE) -> Patch:
    return Patch(f"{module}.{names}", why, _ALL, test, module, upstream)


def _lightning(fabric: str, trainer: str) -> list[Patch]:
    """Of one of Lightning's two names: ``lightning.fabric`` or ``lightning_fabric``, and its Trainer's."""
    connectors = (
        (f"{fabric}.connector", "_Connector"),
        (f"{trainer}.trainer.connectors.accelerator_connector", "_AcceleratorConnector"),
    )
    registries = (
        (f"{fabric}.accelerators", "{ManagedAccelerator,ACCELERATOR_REGISTRY[managed]}"),
        (f"{trainer}.accelerators", "{ManagedAccelerator,AcceleratorRegistry[managed]}"),
        (f"{fabric}.strategies", "STRATEGY_REGISTRY[single_managed]"),
        (f"{trainer}.strategies", "StrategyRegistry[single_managed]"),
    )
    return [
        *(
            _of(
                module,
                f"{owner}.{{_choose_auto_accelerator,_set_parallel_devices_and_init_accelerator,"
                "_check_and_init_precision,_choose_strategy.__code__}",
                "The connector knows devices by lists of names, one of them a tuple in its code.",
                _CHOSEN,
            )
            for module, owner in connectors
        ),
        *(
            _of(module, names, "Lightning's own registries get managed.", _CHOSEN)
            for module, names in registries
        ),
        *(
            _of(
                f"{module}.strategies.ddp",
                "DDPStrategy.{determine_ddp_device_ids,_determine_ddp_device_ids}",
                "Device ids mean CUDA's streams.",
                _TESTS + "test_lightning.py::test_fabric_and_the_older_packages",
            )
            for module in (fabric, trainer)
        ),
        _of(
            f"{fabric}.utilities.seed",
            "{_collect_rng_states,_set_rng_states}",
            "A check before training draws nothing from the training's random stream.",
            _TESTS + "test_lightning.py::test_trainer_gives_the_bits_of_the_cpu",
        ),
        _of(f"{trainer}.trainer.setup", "_log_device_info", "It says that no GPU is used.", _CHOSEN),
    ]


LIBRARY_PATCHES = [
    Patch(
        "torch.nn.modules.module._global_forward_pre_hooks[*]",
        "PyTorch's own call: the first calls of modules show a library that computes on the CPU.",
        _ALL,
        _TESTS + "test_libraries.py::test_trainer_on_the_cpu_is_said",
        "accelerate",
    ),
    _of(
        "accelerate.accelerator",
        "Accelerator.__init__.__code__",
        "Half precision is for the devices of a tuple in the middle of the code, supported_device.",
        _HALF,
        "managed in supported_device, or torch.accelerator",
    ),
    _of(
        "accelerate.utils.modeling", "get_grad_scaler", "A branch for each vendor, and none for ours.", _HALF
    ),
    _of("accelerate.utils.modeling", "get_max_memory", "A branch for each vendor, and none for ours.", _MAPS),
    Patch(
        "logging.getLogger(accelerate.utils.modeling).filters",
        "It asks CUDA how many devices there are, and warns of the managed one.",
        _ALL,
        _MAPS,
        "accelerate.utils.modeling",
        _TRUE,
    ),
    _of(
        "accelerate.state",
        "PartialState.__init__",
        "A setting of the environment goes before cpu=True, and is the package's, not the program's.",
        _TESTS + "test_libraries.py::test_a_script_that_requests_the_cpu_has_it",
    ),
    _of(
        "accelerate.state",
        "PartialState._prepare_backend",
        "Without a branch for the device each process of torchrun's trains alone.",
        _TESTS + "test_libraries.py::test_processes_that_torchrun_starts_train_together",
    ),
    _of(
        "accelerate.checkpointing",
        "{save_accelerator_state,load_accelerator_state}",
        "Checkpoints have the random state of the vendors' devices alone.",
        _RESUMED,
    ),
    _of(
        "cupy",
        "{array,asarray,asanyarray,ascontiguousarray,asfortranarray,from_dlpack}",
        "CuPy takes what has no array interface of CUDA's for NumPy's.",
        _ADDRESSES,
        "the reason of the object's AttributeError in CuPy's",
    ),
    _of(
        "numba.cuda.api",
        "{as_cuda_array,to_device}",
        "Numba says that such a tensor is no array, and not what gives one.",
        _ADDRESSES,
        "the reason of the object's AttributeError in Numba's",
    ),
    *_lightning("lightning.fabric", "lightning.pytorch"),
    *_lightning("lightning_fabric", "pytorch_lightning"),
    _of(
        "safetensors",
        "safe_open",
        "It has a list of devices, in Rust.",
        _MAPS,
        "names of out-of-tree devices in Device::extract",
    ),
    _of(
        "transformers.utils.import_utils",
        "{is_torch_bf16_gpu_available,is_torch_tf32_available}",
        "A branch for each vendor, and none for ours.",
        _HALF,
    ),
    _of("transformers.pipelines.base", "Pipeline.__init__", "A number means a vendor's device.", _PIPELINES),
    _of(
        "transformers.trainer",
        "{Trainer._save_rng_state,Trainer._load_rng_state}",
        "Checkpoints have the random state of the vendors' devices alone.",
        _RESUMED,
    ),
    _of("transformers.cache_utils", "Cache.__init__", "Offloading means CUDA's streams.", _GENERATES),
    _of(
        "transformers.generation.continuous_batching.{requests,utils}",
        "get_device_and_memory_breakdown",
        "It takes the machine's memory for the device's.",
        _GENERATES,
    ),
    _of(
        "transformers.generation.continuous_batching.cache",
        "PagedAttentionMemoryHandler._check_footprint",
        "Memory of the device counts alone, and managed memory is paged.",
        _GENERATES,
    ),
    _of(
        "transformers.modeling_utils",
        "caching_allocator_warmup",
        "Memory for a whole model is taken ahead: of a small node's less than nothing.",
        _TESTS + "test_libraries.py::test_pipelines_and_device_maps_use_managed_in_a_managed_run",
        "no less than zero in caching_allocator_warmup",
    ),
    _of(
        "triton.runtime.jit",
        "JITFunction.run",
        "A launch reads the operands' addresses, and theirs lead nowhere: it is lent the real tensors.",
        "tests/python/compile/test_triton.py::test_a_launch_receives_the_real_tensors",
        "pre-run hooks that may exchange arguments",
    ),
]
