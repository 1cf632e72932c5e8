"""Compares the results of libraries' documented scripts on managed with the CPU's, bit for bit.

Each of scripts/ runs on the CPU, with `import innkeeper` on one simulated GPU with space for all, and with
half of the peak of that run. The entries of its `results` are compared by name.

    python tests/compat/scripts.py --json build/compat/scripts.json
    python tests/compat/scripts.py --only 'peft.*'
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from report import options, write

SHARE = 0.5
SMALLEST = 1 << 17  # Smallest budget, bytes.
LIMIT_S = 300
HERE = Path(__file__).parent
AMPLE = "sim:1x1GiB,host:2GiB"
PLAIN = (sys.executable,)
LAUNCH = (*PLAIN, "-m", "accelerate.commands.launch", "--num_machines", "1", "--mixed_precision", "no")
LAUNCH = (*LAUNCH, "--dynamo_backend", "no")
TORCHRUN = (*PLAIN, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

NO_CAUSE = "of no known cause"
INT8 = (
    "in training bitsandbytes multiplies in float on the CPU, by a list of devices, and in int8 elsewhere;"
    " after eval() in int8 everywhere"
)


class Script(NamedTuple):
    """One run by its name, of a file of scripts/, with the packages that it is about."""

    name: str
    file: str
    packages: tuple[str, ...]
    start: tuple[str, ...] = PLAIN
    start_on_cpu: tuple[str, ...] = PLAIN
    cause: str = ""  # Reason why the results differ from the CPU's.


SCRIPTS = [
    Script("Trainer", "trainer", ("transformers",)),
    Script("Trainer, two processes", "trainer", ("transformers",), TORCHRUN, TORCHRUN),
    Script("accelerate", "accelerate_loop", ("accelerate",)),
    Script("accelerate launch", "accelerate_loop", ("accelerate",), LAUNCH, (*LAUNCH, "--cpu")),
    Script(  # By itself accelerate launches no two processes on a CPU.
        "accelerate launch, two processes",
        "accelerate_loop",
        ("accelerate",),
        (*LAUNCH, "--multi_gpu", "--num_processes", "2"),
        TORCHRUN,
    ),
    Script("Lightning's Trainer", "lightning_trainer", ("lightning",)),
    Script("Lightning's Fabric", "fabric", ("lightning",)),
    Script("peft, LoRA by Trainer", "peft_lora", ("peft", "transformers")),
    Script("peft, its methods", "peft_methods", ("peft",)),
    Script("QLoRA, by bitsandbytes and peft", "qlora", ("bitsandbytes", "peft", "transformers")),
    Script("TRL, SFT", "trl_sft", ("trl",)),
    Script("TRL, DPO", "trl_dpo", ("trl",)),
    Script("diffusers, unconditional", "diffusers_unconditional", ("diffusers",)),
    Script("diffusers, LoRA by peft", "diffusers_lora", ("diffusers", "peft")),
    Script("device maps and offloading", "offloaded", ("accelerate", "diffusers", "transformers")),
    Script("sentence-transformers", "sentence_transformers_fit", ("sentence-transformers",)),
    Script("PyTorch Geometric", "geometric_gcn", ("torch-geometric",)),
    Script("torchmetrics", "torchmetrics_eval", ("torchmetrics",)),
    Script("torchao, weights alone", "torchao_weight_only", ("torchao",)),
    Script("transformers, quantized", "quantized_models", ("transformers", "torchao", "optimum-quanto")),
    Script("bitsandbytes", "bitsandbytes_linear", ("bitsandbytes",), cause=INT8),
    Script("PyTorch's tools", "tools", ("onnx", "onnxscript", "tensorboard")),
    Script("transformers, generate", "generation", ("transformers", "optimum-quanto", "hqq")),
    Script("transformers, continuous batching", "continuous_batching", ("transformers",)),
]


def run(script: Script, nodes: str = "") -> dict[str, Any]:
    """Report of one run, on the CPU or on these nodes; `why` if it did not end well."""
    ours = ("INNKEEPER_", "ACCELERATE_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    start, options = script.start_on_cpu, []
    if nodes:
        environment["INNKEEPER_NODES"] = nodes
        start, options = script.start, ["--managed"]
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        words = [HERE / "run_script.py", report, HERE / "scripts" / f"{script.file}.py", *options]
        try:
            done = subprocess.run(
                [*start, *map(str, words)],
                env=environment,
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"why": f"not done in {LIMIT_S} s"}
        if done.returncode == 0:
            told: dict[str, Any] = json.loads(report.read_text())
            return told
    errors = re.findall(r"^(\w[\w.]*(?:Error|Exception)\b.*)$", done.stderr, re.MULTILINE)
    return {"why": errors[-1][:200] if errors else f"it ended with {done.returncode}"}


def row_of(script: Script) -> dict[str, Any]:
    """Result of one script."""
    row: dict[str, Any] = {"name": script.name, "file": script.file, "packages": script.packages}
    on_cpu = run(script)
    if "why" in on_cpu:
        return row | {"result": "not tried", "why": f"on the CPU: {on_cpu['why']}"}
    whole = run(script, AMPLE)
    if "why" in whole:
        return row | {"result": "fails", "why": whole["why"]}
    peak = whole["stats"]["nodes"]["sim:0"]["peak"]
    squeezed = run(script, f"sim:1x{max(int(peak * SHARE), SMALLEST)}B,host:2GiB")
    if "why" in squeezed:
        return row | {"result": "fails", "why": f"at {SHARE:.0%}: {squeezed['why']}"}
    row |= {"peak": peak, "evictions": squeezed["stats"]["evictions"], "parts": list(on_cpu["results"])}
    others = (whole["results"], squeezed["results"])
    wrong = [name for name, said in on_cpu["results"].items() if any(other[name] != said for other in others)]
    if wrong:
        return row | {"result": "differs", "wrong": wrong, "why": script.cause or NO_CAUSE}
    return row | {"result": "same", "why": ""}


def main() -> int:
    """Runs all scripts, and writes a row for each."""
    args = options(__doc__, ".*", "of the scripts' files").parse_args()
    rows = []
    chosen = [script for script in SCRIPTS if re.fullmatch(args.only, script.file)]
    for script in chosen:
        rows.append(row_of(script))
        row = rows[-1]
        wrong = f"{', '.join(row['wrong'])}: " if "wrong" in row else ""
        print(f"{row['result']:10}{row['name']:36}{wrong}{row['why']}", flush=True)
    if args.json is not None:
        write(args.json, sorted({package for script in chosen for package in script.packages}), rows)
    without_cause = [row for row in rows if row["result"] == "differs" and row["why"] == NO_CAUSE]
    return int(bool(without_cause) or any(row["result"] == "fails" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
