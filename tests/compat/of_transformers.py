"""Every architecture of transformers that can be made small: has it, on managed, the bits of the CPU?

Each is built from random weights by its own classes, in training mode and with whatever dropout it has, and
makes two steps of AdamW: on the CPU, on the managed device with room for all, and with 60 % of the peak that
this took, on one simulated GPU. Losses and all weights are compared bit by bit. A child process each, so that
one that dies or hangs is one row.

    python tests/compat/architectures.py --json build/compat/architectures.json
    python tests/compat/architectures.py --only 'gpt2|bert'
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ["INNKEEPER_NODES"] = "sim:1x2GiB,host:2GiB"

import innkeeper
import transformers
from transformers.models.auto import modeling_auto

import torch

SHARE = 0.6
STEPS = 2
LIMIT_S = 120
MOST_PARAMETERS = 30_000_000  # what is larger could not be made small
SMALLEST = 1 << 17  # of a budget

# What makes a configuration small, wherever one has it. In its parts, too.
SMALL: dict[str, Any] = {
    **dict.fromkeys(["hidden_size", "d_model", "n_embd", "embed_dim", "dim", "emb_dim"], 32),
    **dict.fromkeys(["word_embed_proj_dim", "embedding_size"], 32),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers"], 2),
    **dict.fromkeys(["encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"], 4),
    **dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 4),
    **dict.fromkeys(["num_key_value_heads", "num_experts_per_tok", "n_group", "topk_group"], 2),
    **dict.fromkeys(["intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"], 64),
    **dict.fromkeys(["n_inner", "inner_dim", "mlp_dim", "ffn_hidden_size", "moe_intermediate_size"], 64),
    **dict.fromkeys(["shared_expert_intermediate_size", "max_position_embeddings", "n_positions"], 64),
    **dict.fromkeys(["max_source_positions", "max_target_positions"], 64),
    **dict.fromkeys(["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim"], 8),
    **dict.fromkeys(["kv_lora_rank", "q_lora_rank"], 16),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **{"vocab_size": 99, "head_dim": 8, "d_kv": 8, "image_size": 32, "patch_size": 8, "attention_window": 8},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
}

Inputs = Callable[[Any], dict[str, torch.Tensor]]


def text(config: Any) -> dict[str, torch.Tensor]:
    tokens = 3 + torch.randint(0, 90, (2, 16), generator=torch.Generator().manual_seed(1))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}


def images(config: Any) -> dict[str, torch.Tensor]:
    size = getattr(config, "image_size", None) or 32
    side = size if isinstance(size, int) else size[0]
    pixels = torch.randn(
        2, getattr(config, "num_channels", 3), side, side, generator=torch.Generator().manual_seed(1)
    )
    return {"pixel_values": pixels, "labels": torch.tensor([0, 1])}


# The task, its table in transformers, its inputs. An architecture is tried by the first that has it.
TASKS: list[tuple[str, str, Inputs]] = [
    ("causal language model", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", text),
    ("masked language model", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", text),
    ("sequence to sequence", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", text),
    ("image classification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", images),
]


def architectures() -> Iterator[tuple[str, str, str, Inputs]]:
    """The name, the task, the class and its inputs of each."""
    seen: set[str] = set()
    for task, table, inputs in TASKS:
        for name, classes in getattr(modeling_auto, table).items():
            if name not in seen:
                seen.add(name)
                yield name, task, classes if isinstance(classes, str) else classes[0], inputs


def shrink(config: Any) -> None:
    """Makes a configuration small in place."""
    for name, value in SMALL.items():
        if isinstance(getattr(config, name, None), int) and not isinstance(getattr(config, name), bool):
            with contextlib.suppress(AttributeError):  # it follows from another
                setattr(config, name, value)
    if isinstance(getattr(config, "layer_types", None), list):
        with contextlib.suppress(AttributeError):
            config.layer_types = config.layer_types[:2]
    for part in vars(config).values():
        if isinstance(part, transformers.PreTrainedConfig):
            shrink(part)


def train(model: torch.nn.Module, inputs: dict[str, torch.Tensor], device: str) -> list[str]:
    """Two steps; the losses and a hash of all weights."""
    torch.manual_seed(2)
    model.to(device).train()
    inputs = {name: value.to(device) for name, value in inputs.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    said = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        said.append(loss.item().hex())
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return [*said, digest.hexdigest()[:16]]


def made(class_name: str) -> tuple[Any, Callable[[], torch.nn.Module]]:
    """The small configuration, and what makes the model, each time of the same weights."""
    cls = getattr(transformers, class_name)
    config = cls.config_class()
    shrink(config)
    config.use_cache = False
    if (
        getattr(config, "is_encoder_decoder", False)
        and getattr(config, "decoder_start_token_id", None) is None
    ):
        config.decoder_start_token_id = 0

    def make() -> torch.nn.Module:
        torch.manual_seed(0)
        model: torch.nn.Module = cls(config)
        return model

    return config, make


def tried(class_name: str, inputs_of: Inputs) -> dict[str, Any]:
    """What happened to one: a row without its names."""
    warnings.simplefilter("ignore")
    try:
        config, make = made(class_name)
        model = make()
        size = sum(p.numel() for p in model.parameters())
        if size > MOST_PARAMETERS:
            return {"result": "not tried", "why": f"{size:,} parameters where it was made small"}
        inputs = inputs_of(config)
        expected = train(model, inputs, "cpu")
        if train(make(), inputs, "cpu") != expected:
            return {"result": "not tried", "why": "two runs on the CPU differ"}
    except Exception as error:
        return {"result": "not tried", "why": f"on the CPU: {told(error)}"}
    row: dict[str, Any] = {"parameters": size}
    try:
        model = make()
        torch.manual_seed(2)
        cpus_own = torch.get_rng_state()
        whole = train(model, inputs, "managed")
        two_generators = not torch.equal(torch.get_rng_state(), cpus_own)
        peak = innkeeper.stats()["nodes"]["sim:0"]["peak"]
        del model
        budget = max(int(peak * SHARE), SMALLEST)
        innkeeper.manager().set_budget("sim:0", budget)
        innkeeper.manager().reset_stats()
        squeezed = train(make(), inputs, "managed")
        stats = innkeeper.stats()
    except Exception as error:
        return row | {"result": "fails", "why": told(error)}
    same = {"with room for all": whole == expected, f"at {SHARE:.0%}": squeezed == expected}
    row |= {"peak": peak, "evictions": stats["evictions"]}
    wrong = [what for what, holds in same.items() if not holds]
    if wrong and two_generators:
        wrong.append("it draws from the CPU's generator, too, and from two as on CUDA")
    return row | ({"result": "differs", "why": ", ".join(wrong)} if wrong else {"result": "same", "why": ""})


def told(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


def child(class_name: str, inputs_of: Inputs, pipe: Any) -> None:
    """In a process of its own; it is not left by return, since a library's threads may be left over."""
    pipe.send(tried(class_name, inputs_of))
    pipe.close()
    os._exit(0)


def row_of(name: str, task: str, class_name: str, inputs_of: Inputs) -> dict[str, Any]:
    """One architecture's, whatever happens to its process."""
    began = time.monotonic()
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(class_name, inputs_of, its))
    process.start()
    its.close()
    try:
        found = mine.recv() if mine.poll(LIMIT_S) else {"result": "fails", "why": f"not done in {LIMIT_S} s"}
    except EOFError:
        process.join()
        found = {"result": "fails", "why": f"its process ended with {process.exitcode}"}
    process.kill()
    process.join()
    return {"name": name, "task": task, "seconds": round(time.monotonic() - began, 1)} | found


def main() -> int:
    """Runs all, and writes a row for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="of the architectures' names")
    parser.add_argument("--json", type=Path, help="write the rows there")
    args = parser.parse_args()
    rows = []
    for name, task, class_name, inputs_of in architectures():
        if re.fullmatch(args.only or ".*", name) is None:
            continue
        rows.append(row_of(name, task, class_name, inputs_of))
        row = rows[-1]
        print(f"{row['result']:10}{name:32}{row['why']}", flush=True)
    counts = Counter(row["result"] for row in rows)
    print(", ".join(f"{count} {result}" for result, count in counts.most_common()))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        asked = ["git", "rev-parse", "--short", "HEAD"]
        head = subprocess.run(asked, capture_output=True, text=True, check=False)
        versions = {"transformers": transformers.__version__, "torch": torch.__version__}
        versions["commit"] = head.stdout.strip() or "outside of a repository"
        args.json.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1))
    return int(counts["differs"] + counts["fails"] > 0)


if __name__ == "__main__":
    sys.exit(main())
