"""The way in which test_commands.py tries each command that a document names: a line for each."""

from __future__ import annotations

from typing import NamedTuple


class Elsewhere(NamedTuple):
    """The test that runs it, as FILE::NAME, or a part of a line of a script in tools."""

    place: str


class Short(NamedTuple):
    """A shorter command that runs in its place, and a part of its output."""

    command: str
    says: str = ""


AS_IT_IS = Short("")
SMALL = ["--width", "32", "--layers", "2", "--heads", "2", "--batch", "4", "--context", "32", "--lr", "1e-2"]
TINY = " ".join(SMALL)
BENCH = Elsewhere("QUICK=1 tools/bench.sh")
DEMO = Short("make demo QUICK=1", "bitwise equal weights")
TRAIN = Short(
    f"INNKEEPER_NODES=sim:1x110MiB,host:2GiB .venv/bin/python examples/train_text.py --device managed"
    f" --steps 2 {TINY}",
    "parameters, loss",
)
DDP = Elsewhere("tests/python/docs/test_examples.py::test_ddp_gives_the_same_weights_as_on_the_cpu")
GPU_TESTS = Elsewhere("tests/python/docs/test_gpu_tests.py::test_they_pass_on_a_simulated_gpu")
GPU_TABLE = Elsewhere(
    "tests/python/docs/test_gpu_table.py::"
    "test_innkeepers_ways_have_the_bits_of_plain_pytorch_on_a_simulated_gpu"
)
LIST_DRAWN = Short("tools/mutate --random 3 --seed 1 --list", " src/")
LIST_MUTANTS = Short("tools/mutate --list", "torch/copy-write")
INSTALL = Short("pip install --dry-run --no-build-isolation --no-deps .", "Would install innkeeper-")
SLURM = Elsewhere("tests/cli/test_slurm.py::test_dry_run_submits_nothing")
SCRIPTS = Elsewhere(
    "tests/python/scripts/test_scripts.py::test_a_script_trains_unmodified_at_60_percent_of_its_peak"
)
TWO_HALVES = "INNKEEPER_NODES=sim:2x64MiB,host:2GiB innkeeper run --managed tests/scripts/model_parallel.py"
PYTORCH_OWN = 'tools/pytorch_own.py -k "test_broadcast_group or test_all_reduce_sum_async"'
PLANS = Elsewhere("tests/python/memory/test_plans.py::test_plans_change_no_bit_and_cost_nothing")
CLANG = "cmake --preset clang-thread-safety"
TESTS = "build/wheel/tests/tests_one --gtest_filter="
REPLAY = Elsewhere("tests/cli/test_replay.py::test_plays_a_record_and_says_what_it_takes")
RECORD = Elsewhere("tests/python/memory/test_recording.py::test_the_traces_script_records_what_replay_plays")
CPP = Elsewhere("tests/python/device/test_cpp.py::test_the_examples_commands_work_as_they_are_pasted")

TRIED: dict[str, Short | Elsewhere] = {
    # the Makefile
    "make help": Short("make help", "make check-torch"),
    "make setup": AS_IT_IS,
    "make demo": DEMO,
    ". .venv/bin/activate": Short(
        ". .venv/bin/activate && python -c 'import innkeeper' && innkeeper --help", "Subcommands:"
    ),
    "make check": Elsewhere("tools/check.sh"),
    "make check CHANGED=1": Short("python3 tools/check_changed.py --list", "tools/lint.sh structure"),
    "make test": Elsewhere('"make", "--no-print-directory", "test"'),
    "make test FAILED=1": Short("make -n test FAILED=1", "tools/test.sh"),
    "make verify JOB=check-torch": Short("python3 tools/jobs.py --help", "jobs.py verify"),
    "make verify JOB=commands": Short("python3 tools/jobs.py --help", "jobs.py verify"),
    "make verify": Short("python3 tools/jobs.py --help", "jobs.py verify"),
    'make verify JOB="asan tsan"': Short("python3 tools/jobs.py --help", "jobs.py verify"),
    "make nightly": Short("python3 tools/jobs.py --help", "jobs.py nightly"),
    "make nightly JOB=soak": Short("python3 tools/jobs.py --help", "jobs.py nightly"),
    "make bench": BENCH,
    "make cuda": Short("TORCH=none make cuda", "cuda tests skipped: "),
    "TIER=1 MODES=late make cuda": Short("TORCH=none TIER=1 MODES=late make cuda", "cuda tests skipped: "),
    "BUILD_ONLY=1 make gpu": Short("CUDA_VISIBLE_DEVICES= BUILD_ONLY=1 make gpu", "gpu tests skipped: "),
    "tools/mutate --cuda": LIST_MUTANTS,
    "tools/cuda.sh --help": AS_IT_IS,
    'OUT=build/gpu/NAME PYTEST_ARGS="-k NAME" make gpu': Short(
        """OUT=$TMPDIR CUDA_VISIBLE_DEVICES= PYTEST_ARGS="-k 'a or b'" make gpu""", "gpu tests skipped: "
    ),
    "make gpu": Short("CUDA_VISIBLE_DEVICES= make gpu", "gpu tests skipped: "),
    "make table": Short(
        "CUDA_VISIBLE_DEVICES= make table ONLY='T5.*(plain|compile)'", "No measurement: there is no GPU here."
    ),
    "ALL=1 MINUTES=60 make table": Short(
        "CUDA_VISIBLE_DEVICES= ALL=1 MINUTES=60 make table ONLY='fits 8x256'", "0 B moved"
    ),
    "tools/table.sh --help": AS_IT_IS,
    "make lint": Short("make lint QUICK=1", "== tidy =="),
    "make format": Elsewhere("tests/python/docs/test_commands.py::test_make_format_formats"),
    "make clean": Elsewhere("tests/python/docs/test_commands.py::test_make_clean_removes_what_was_built"),
    "make docs": Short("make docs QUICK=1", "Pages and Python: Sphinx"),
    "make asan": Short("make asan QUICK=1"),
    "make compat": Short("make compat QUICK=1", "transformers: 3 same"),
    "make check-torch": Short("make check-torch QUICK=1", "PyTorch ours: 1 files"),
    "make fresh": Short("make fresh USER_MODE=1 RUN='make help'", "fresh: make help ended with 0"),
    'make fresh RUN="make lint"': Short("make fresh USER_MODE=1 RUN='make help'"),
    # C++
    "cmake --preset dev && cmake --build --preset dev && build/dev/tests/tests_one": Short(
        "cmake --preset dev && cmake --build --preset dev --target innkeeper_base"
    ),
    "tools/sanitize.sh asan-ubsan": Elsewhere("tools/sanitize.sh asan-ubsan"),
    "tools/sanitize.sh tsan": Elsewhere("tools/sanitize.sh tsan"),
    CLANG: AS_IT_IS,
    "cmake --preset clang-thread-safety && cmake --build --preset clang-thread-safety": Short(
        f"{CLANG} && cmake --build --preset clang-thread-safety --target innkeeper_base"
    ),
    "prefix=$(.venv/bin/python -c 'import innkeeper; print(innkeeper.cmake_prefix_path)')": CPP,
    'cmake -S examples/cpp -B build/cpp -DCMAKE_PREFIX_PATH="$prefix"': CPP,
    "cmake --build build/cpp": CPP,
    "build/cpp/train --device cpu": CPP,
    "INNKEEPER_NODES=sim:1x6MiB,host:1GiB build/cpp/train --device managed": CPP,
    "INNKEEPER_NODES=sim:1x6MiB,host:1GiB build/cpp/train --epochs 2 --save build/cpp/half.pt": CPP,
    "build/cpp/train --load build/cpp/half.pt --device cpu": CPP,
    "cmake --build build/wheel --target tests_one": AS_IT_IS,
    "build/wheel/tests/tests_one": Elsewhere('run_core_tests "$WHEEL_BUILD/tests/tests_one" core'),
    f"INNKEEPER_SEED=7 {TESTS}*Walk*": AS_IT_IS,
    f"INNKEEPER_STEPS=1000000 {TESTS}*Walk*": Short(f"INNKEEPER_STEPS=1000 {TESTS}*Walk*", "PASSED"),
    f"INNKEEPER_STORM_GRANTS=30000 INNKEEPER_STORM_KILLS=300 {TESTS}LeaseStorm*": Short(
        f"INNKEEPER_STORM_GRANTS=30 INNKEEPER_STORM_KILLS=3 {TESTS}LeaseStorm*", "grants"
    ),
    f"INNKEEPER_STORM_JOBS=500 INNKEEPER_STORM_KILLS=100 {TESTS}QueueStorm*": Short(
        f"INNKEEPER_STORM_JOBS=5 INNKEEPER_STORM_KILLS=1 {TESTS}*AtRandom", "jobs, 1 runners killed"
    ),
    "tools/fuzz.sh 600": Elsewhere("tools/fuzz.sh 60"),
    "build/wheel/bench/lease_bench": BENCH,
    "build/wheel/bench/lease_bench --benchmark_repetitions=3": BENCH,
    "build/wheel/bench/queue_bench --benchmark_repetitions=3": BENCH,
    # Python
    "pip install .": INSTALL,
    "pip install --no-build-isolation .": INSTALL,
    ".venv/bin/python -m pytest tests/python/device/test_manager.py -k statistics": AS_IT_IS,
    "python -c pass": AS_IT_IS,
    "python bench/overhead.py": BENCH,
    "python bench/overhead.py --json overhead.json --rounds 50": BENCH,
    "python bench/collectives.py": BENCH,
    "python tools/pytorch_own.py": Short(f"python {PYTORCH_OWN}", "0 failed"),
    f"python {PYTORCH_OWN}": Short(f"python {PYTORCH_OWN}", "0 failed"),
    "python bench/collectives.py --json collectives.json --rounds 50": BENCH,
    "python bench/parallel.py": BENCH,
    "python bench/parallel.py --json parallel.json --steps 8": BENCH,
    "python bench/compiled.py": BENCH,
    "python bench/import_time.py": BENCH,
    "python bench/import_time.py --rounds 40": BENCH,
    "python bench/compiled.py --only gpt --rounds 30 --json compiled.json": BENCH,
    "python bench/experiments.py": BENCH,
    "python bench/experiments.py --rounds 6": BENCH,
    "python bench/experiments.py --threads 4 --rounds 20 --json experiments.json": BENCH,
    "python bench/movement.py": BENCH,
    "python bench/input_loop.py": BENCH,
    "python bench/input_loop.py --json input_loop.json --steps 50": BENCH,
    "python bench/bookkeeping.py": BENCH,
    "python bench/least_time.py": BENCH,
    "python bench/unknown_times.py": BENCH,
    "python bench/host_pace.py": BENCH,
    "python bench/host_pace.py --only lstm --pace 50": BENCH,
    "python bench/unknown_times.py --seeds 10 --share 0.9,0.8,0.7,0.6,0.5,0.4": BENCH,
    "python bench/unknown_times.py --seeds 10 --share 0.9,0.8,0.7,0.6,0.5,0.4 "
    '--only "lstm|res|unet|bert|mix"': BENCH,
    'python bench/unknown_times.py --seeds 10 --share 0.9,0.8,0.7,0.6,0.5,0.4 --only "gpt2|llama"': BENCH,
    'python bench/host_pace.py --only "lstm|resnet|unet|bert"': BENCH,
    "python bench/variation.py": BENCH,
    "python bench/variation.py --seeds 4": BENCH,
    "python bench/variation.py --only GAN --seeds 1": BENCH,
    "python bench/least_time.py --only gpt2 --share 0.5 --intervals 120": BENCH,
    "python bench/with_data.py": BENCH,
    "python bench/with_disk.py": BENCH,
    "python bench/with_disk.py --only opt --disk 200": BENCH,
    "python bench/optimizers.py": BENCH,
    "python bench/optimizers.py --only bert-large --share 0.6": BENCH,
    "python bench/with_data.py --only opt --share 0.6,0.4": BENCH,
    "python bench/optimizers.py --share 0.8,0.7,0.5": BENCH,
    "python bench/bookkeeping.py --counts 1000000 --json bookkeeping.json": BENCH,
    "build/wheel/bench/eviction_bench": BENCH,
    "build/wheel/bench/plan_bench": BENCH,
    "build/wheel/bench/stream_bench": BENCH,
    "python bench/overhead.py --rounds 15": BENCH,
    "python bench/followed.py": BENCH,
    "python bench/followed.py --rounds 100": BENCH,
    "python bench/wanted.py": BENCH,
    "python bench/wanted.py --only circle --json wanted.json": BENCH,
    "INNKEEPER_PLANNING=off python train.py": PLANS,
    "INNKEEPER_LOG=info python train.py": PLANS,
    "python bench/movement.py --json movement.json --steps 4": BENCH,
    "python bench/replay.py": BENCH,
    "python bench/replay.py --host-bandwidth 200": BENCH,
    "python bench/replay.py --only 'gpt2|llama' --html build/replay.html --json build/replay.json": BENCH,
    "python bench/traces/record.py": RECORD,
    "python bench/queue_program.py 300": BENCH,
    "python bench/waiting_line.py 10 100 300 1000": BENCH,
    "python bench/soak.py --minutes 60": Short(
        "python bench/soak.py --minutes 60 --quick", "no leak, no drift"
    ),
    "python bench/cli_start.py --install": Short(
        "python bench/cli_start.py --install --quick", "nvitop -1 (as status)"
    ),
    "python examples/demo.py": DEMO,
    "python3 examples/demo.py": DEMO,
    "python examples/demo.py --fraction 0.3 --gpus 2 --steps 30": Short(
        f"python examples/demo.py --fraction 0.3 --gpus 2 --steps 30 {TINY} --page $TMPDIR/page.html",
        "bitwise equal weights",
    ),
    "python examples/train_text.py --steps 50": Short(f"python examples/train_text.py --steps 2 {TINY}"),
    "INNKEEPER_NODES=sim:1x110MiB,host:2GiB python examples/train_text.py --device managed --steps 50": TRAIN,
    "INNKEEPER_NODES=sim:1x110MiB,host:2GiB .venv/bin/python examples/train_text.py --device managed"
    " --steps 20": TRAIN,
    "INNKEEPER_NODES=sim:1x110MiB,host:2GiB .venv/bin/torchrun --nproc-per-node 2 examples/ddp.py"
    " --steps 20": DDP,
    "INNKEEPER_NODES=sim:1x110MiB,host:2GiB .venv/bin/innkeeper run --nproc 2 -- examples/ddp.py"
    " --steps 20": DDP,
    "INNKEEPER_GPU_TESTS=sim .venv/bin/python -m pytest tests/gpu": GPU_TESTS,
    "python3 bench/gpu_table --tests FILE": GPU_TESTS,
    "python3 bench/gpu_table --print": GPU_TABLE,
    "python bench/gpu_table/predict.py": Elsewhere(
        "tests/python/docs/test_gpu_table.py::test_predictions_are_rows_of_shares"
    ),
    # tools
    "python3 tools/repeat.py --busy 4 50 .venv/bin/python -m pytest -q tests/cli": Elsewhere(
        "tests/python/docs/test_tools.py::test_repeating_names_what_failed_and_what_took_long"
    ),
    f"python3 tools/repeat.py --busy 4 50 {TESTS}*Storm*": Short(
        f"python3 tools/repeat.py --busy 1 2 {TESTS}Bytes*", "2 runs beside 1 busy processes"
    ),
    "tools/check_figures.py --fresh": Short("python3 tools/check_figures.py"),
    "tools/fresh.sh --help": Short("tools/fresh.sh --help", "KEEP=1"),
    "tools/mutate": LIST_MUTANTS,
    "tools/mutate --list": LIST_MUTANTS,
    "tools/mutate --jobs 2": LIST_MUTANTS,
    "tools/mutate --jobs 2 --minutes 50": LIST_MUTANTS,
    "tools/mutate --torch": LIST_MUTANTS,
    "tools/mutate --random 50 --seed 1": LIST_DRAWN,
    "tools/mutate --random N --seed S": LIST_DRAWN,
    "tools/mutate --random 200 --seed 1 --jobs 2": LIST_DRAWN,
    "tools/mutate --random 200 --seed 1 --jobs 1": LIST_DRAWN,
    "tools/mutate --random 46 --seed 2": LIST_DRAWN,
    "tools/mutate --torch --random 20 --seed 2": Short(
        "tools/mutate --torch --random 20 --seed 2 --list", " src/torch/"
    ),
    "tools/screens.sh": Elsewhere(
        "tests/cli/test_screens.py::test_the_screens_in_the_documents_are_the_programs"
    ),
    # the program
    "man innkeeper": Elsewhere(
        "tests/cli/test_help.py::test_the_man_page_has_the_commands_and_options_of_the_program"
    ),
    "innkeeper --help": Short("innkeeper --help", "Subcommands:"),
    "innkeeper status": Short("innkeeper status", "3 GPUs"),
    "innkeeper status --json": Short("innkeeper status --json", '"schema": 1'),
    "innkeeper top": Elsewhere("tests/cli/test_top.py::test_shows_gpus_leases_and_plots_and_quits"),
    "innkeeper doctor": Elsewhere("tests/cli/test_doctor.py::test_a_good_machine_has_no_trouble"),
    "innkeeper doctor --patches": Elsewhere("tests/cli/test_doctor.py::test_patches_of_pytorch_are_listed"),
    "innkeeper calibrate --show": Elsewhere(
        "tests/cli/test_calibrate.py::test_what_programs_measured_is_shown_and_cleared"
    ),
    "innkeeper calibrate": Elsewhere(
        "tests/cli/test_calibrate.py::test_calibrate_measures_and_keeps_its_figures"
    ),
    "innkeeper replay": Short(
        "zcat bench/traces/lstm.trace.gz | innkeeper replay - --share 0.9", "operators a step"
    ),
    "innkeeper replay FILE": REPLAY,
    "innkeeper replay --as-recorded train.trace": Elsewhere(
        "tests/cli/test_replay.py::test_steps_that_differ_are_played_as_they_were_recorded"
    ),
    'innkeeper replay build/train.trace --gpu "RTX 4090" --link "PCIe 4 x16" --share 0.9,0.7,0.5': REPLAY,
    "innkeeper completion bash": Short("innkeeper completion bash", "complete "),
    "innkeeper pick": Short("innkeeper pick", "GPU-"),
    "innkeeper pick -n 2": Short("CUDA_VISIBLE_DEVICES=$(innkeeper pick -n 2) python -c pass"),
    "CUDA_VISIBLE_DEVICES=$(innkeeper pick --hold 1m) python train.py": Short(
        "CUDA_VISIBLE_DEVICES=$(innkeeper pick --hold 1m) python -c pass"
    ),
    "innkeeper run -- true": Short("innkeeper run -- true"),
    "innkeeper run --mem 20G --wait -- python train.py": Short(
        "innkeeper run --mem 20G --wait -- python -c pass"
    ),
    "innkeeper run --nproc 2 -- train.py": DDP,
    "innkeeper run --managed --nproc 2 -- train.py": Elsewhere(
        "tests/python/scripts/test_scripts.py::"
        "test_a_script_of_two_processes_trains_by_nccl_s_name_at_60_percent_of_its_peak"
    ),
    "innkeeper run --managed train.py": Elsewhere(
        "tests/cli/test_run_managed.py::test_words_reach_the_script_as_they_are"
    ),
    "INNKEEPER_NODES=sim:2x1GiB,host:8GiB innkeeper run --managed train.py --epochs 3": Short(
        "INNKEEPER_NODES=sim:2x1GiB,host:8GiB innkeeper run --managed tests/scripts/image_classifier.py "
        "--epochs 1",
        "test loss",
    ),
    TWO_HALVES.replace("innkeeper run", ".venv/bin/innkeeper run"): Short(TWO_HALVES, "step 7 loss"),
    "python -m innkeeper": SCRIPTS,
    "python -m innkeeper train.py": SCRIPTS,
    "innkeeper run --mem 20G --wait -- CMD": Short("innkeeper run --mem 20G --wait -- true"),
    "innkeeper run -n 2 --exclusive -- torchrun --nproc-per-node 2 train.py": Short(
        "innkeeper run -n 2 --exclusive -- true"
    ),
    "innkeeper lease list": Short("innkeeper lease list"),
    "id=$(innkeeper lease hold --for 2h --background | cut -d ' ' -f 1)": Short(
        "id=$(innkeeper lease hold --for 2h --background | cut -d ' ' -f 1); innkeeper lease release $id"
    ),
    "innkeeper lease release $id": Short(
        "id=$(innkeeper lease hold --for 2h --background | cut -d ' ' -f 1); innkeeper lease release $id"
    ),
    "innkeeper setup": Elsewhere("tests/cli/test_setup.py::test_it_makes_a_directory_that_protects"),
    "innkeeper queue list": AS_IT_IS,
    "innkeeper run --managed": Short("innkeeper run --managed -c 'print(6 * 7)'", "42"),
    "innkeeper queue add --mem 20G -- CMD": Short(
        "innkeeper queue add --mem 8G -- true && innkeeper queue wait"
    ),
    "innkeeper queue": Short("innkeeper queue --help", "Subcommands:"),
    "innkeeper queue add": Short("innkeeper queue add --gpus 0 -- true && innkeeper queue wait"),
    "innkeeper queue add --mem 8G --sweep lr=0.1,0.01 -- python train.py --lr {lr}": Short(
        "innkeeper queue add --mem 8G --sweep lr=0.1,0.01 -- /bin/echo --lr {lr} && innkeeper queue wait"
    ),
    "innkeeper queue prune": Short("innkeeper queue prune", "pruned 0 jobs"),
    "innkeeper queue prune --auto": Short("innkeeper queue prune --auto", "kept by itself"),
    "innkeeper queue prune --older 30d --keep 500": Short(
        "innkeeper queue prune --older 30d --keep 500", "pruned"
    ),
    "innkeeper slurm submit": SLURM,
    "innkeeper slurm submit --mem 20G -- CMD": SLURM,
}
