"""Training with data through the device, on a simulated GPU with less and less memory, beside its bounds.

Small models of shapes that no developer tuned plans on: the demo's GPT, an OPT and a ViT of transformers,
from random weights. Each case is a process of its own. Times are the simulator's, in multiples of a step with
memory for all, of steps after those in which plans are made. ``on demand`` is without plans, ``recompute``
with plans that may recompute blocks, ``time_bound`` the time of ``stats()`` that no plan goes below. Bytes
are those that arrive in a step, in multiples of ``bytes_bound``, the least of all plans that only copy. Every
way has the losses of the run with memory for all, to the bit.

    python bench/with_data.py
    python bench/with_data.py --only opt --share 0.6,0.4
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from support.apart import found_apart
from support.on_the_clock import WAYS, measured

if TYPE_CHECKING:
    import torch

GPU = "gpu=H100,link=PCIe 5 x16"

Loss = Callable[[], "torch.Tensor"]


def demo() -> tuple[torch.nn.Module, Loss]:
    """The demo's GPT: 6 layers, width 192, 16 x 64 letters."""
    from torch.nn import functional as F
    from train_text import GPT

    import torch

    model = GPT(65, 64, 192, 6, 6, 0.0).to("managed")
    x = torch.randint(65, (16, 64)).to("managed")
    return model, lambda: F.cross_entropy(model(x).flatten(0, 1), x.flatten())


def opt() -> tuple[torch.nn.Module, Loss]:
    """An OPT: 6 layers, width 192, 16 x 64 words."""
    from transformers import OPTConfig, OPTForCausalLM

    import torch

    config = OPTConfig(
        vocab_size=512, hidden_size=192, num_hidden_layers=6, ffn_dim=768, num_attention_heads=6,
        max_position_embeddings=128, word_embed_proj_dim=192, dropout=0.0, use_cache=False,
    )  # fmt: skip
    model = OPTForCausalLM(config).to("managed")
    x = torch.randint(512, (16, 64)).to("managed")
    return model, lambda: model(input_ids=x, labels=x).loss


def vit() -> tuple[torch.nn.Module, Loss]:
    """A ViT: 6 layers, width 192, 16 pictures of 64 parts."""
    from transformers import ViTConfig, ViTForImageClassification

    import torch

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=6, intermediate_size=768, image_size=64,
        patch_size=8, num_labels=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = ViTForImageClassification(config).to("managed")
    x = torch.randn(16, 3, 64, 64).to("managed")
    y = torch.randint(10, (16,)).to("managed")
    return model, lambda: model(pixel_values=x, labels=y).loss


MODELS = {"demo": demo, "opt": opt, "vit": vit}


def training(name: str) -> Loss:
    """A step of one of the models, which gives its loss."""
    import innkeeper  # noqa: F401  the device

    import torch

    torch.manual_seed(0)
    model, loss = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> torch.Tensor:
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def train(name: str, steps: int) -> dict[str, Any]:
    """The time of a step, in this process."""
    step = training(name)
    losses: list[torch.Tensor] = []
    return measured(lambda: losses.append(step()), steps) | {"losses": [value.item() for value in losses]}


def check_losses(found: dict[str, Any], whole: dict[str, Any], case: str) -> None:
    """Ends the benchmark where a way of a case has other losses than the run with memory for all."""
    for way, row in found.items():
        if row["losses"] != whole["losses"]:
            raise SystemExit(f"{case}, {way}: losses differ from those with room for all")


def run(name: str, steps: int, space: str, settings: dict[str, str]) -> dict[str, Any]:
    """The same in a process of its own, on a GPU with the given budget."""
    words = ("--case", name, "--steps", steps)
    nodes = f"sim:{space},host:4GiB"
    found: dict[str, Any] = found_apart(
        *words, what=f"{name} with {space}", nodes=nodes, INNKEEPER_SIM=GPU, **settings
    )
    return found


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=MODELS, help="one of the models")
    parser.add_argument("--share", default="0.9,0.7,0.5,0.4", help="of the peak")
    parser.add_argument("--steps", type=int, default=8, help="that are measured")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--quick", action="store_true", help="one cell: to see that it works")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(train(args.case, args.steps)))
        return
    if args.quick:
        args.only, args.share, args.steps = "demo", "0.5", 2
    table = Table("model", "room", *WAYS, "time_bound", "bytes, planned", "recompute")
    rows = []
    for name in [args.only] if args.only else MODELS:
        whole = run(name, args.steps, "2GiB", {})
        for share in map(float, args.share.split(",")):
            space = f"{int(share * whole['peak'])}B"
            found = {way: run(name, args.steps, space, settings) for way, settings in WAYS.items()}
            check_losses(found, whole, f"{name} at {share:.0%}")
            planned = found["planned"]
            bound = planned["bytes_bound"] or 0
            times = [f"{row['seconds'] / whole['seconds']:.2f}x" for row in found.values()]
            least = f"{planned['time_bound'] / whole['seconds']:.2f}x" if planned["time_bound"] else ""
            moved = [
                f"{found[way]['fetched'] / bound:.2f}" if bound else "" for way in ("planned", "recompute")
            ]
            table.add_row(name, f"{share:.0%}", *times, least, *moved)
            rows.append({"model": name, "share": share, "whole": whole, **found})
    Console(soft_wrap=True, width=120).print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
