"""Libraries that choose a device themselves use managed, or Innkeeper reports that they do not."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from managed_scripts import SCRIPTS, Scripts
from torchrun import Torchrun

MODEL = """
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, pipeline
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=2, n_positions=64)).eval()
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(32)}, unk_token="w0"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w1", eos_token="w2")
"""
PIPELINE = """
pipe = pipeline("text-generation", model=model, tokenizer=tokenizer{device})
print(pipe.device)
print(pipe("w3 w4", max_new_tokens=4, do_sample=False)[0]["generated_text"])
"""
AUTO = """
from transformers import AutoModelForCausalLM
model.save_pretrained("saved")
loaded = AutoModelForCausalLM.from_pretrained("saved", device_map="auto")
print(loaded.device, loaded(torch.tensor([[1, 2, 3]]).to(loaded.device)).logits.double().sum().item())
"""


@pytest.mark.parametrize("nodes", ["sim:2x2GiB,host:1GiB", "sim:1x16MiB,host:1GiB"])
def test_pipelines_and_device_maps_use_managed_in_a_managed_run(scripts: Scripts, tmp_path: Path, nodes: str):
    script = scripts.write(MODEL + PIPELINE.format(device="") + AUTO)
    on_cpu = scripts.python(script)
    done, stats = scripts.managed(nodes, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("cuda:0", "cpu") == on_cpu.stdout and done.stdout.count("cuda:0") == 2
    assert stats["ops"] > 0 and stats["nodes"]["sim:0"]["peak"] > 0


def test_trainer_uses_managed_after_a_plain_import(scripts: Scripts):
    script = (
        SCRIPTS / "finetune.py"
    ).read_text() + "\nprint(trainer.args.device, innkeeper.stats()['ops'] > 0)"
    said, warned = scripts.plain(script)
    assert said.splitlines()[-1] == "managed True" and warned == ""


def test_offloaded_caches_and_continuous_batching_generate_on_managed(scripts: Scripts):
    """Neither uses CUDA's streams, nor takes the machine's memory for the device's."""
    code = """
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
config = LlamaConfig(**sizes, initializer_range=0.3, pad_token_id=0, eos_token_id=2, bos_token_id=1)
model = LlamaForCausalLM(config).eval()
prompt = [1, 5, 9, 13]
said = {}
for device in ("cpu", "managed"):
    model.to(device)
    for cache in ("dynamic", "offloaded", "offloaded_static"):
        if device == "managed" or cache == "dynamic":
            made = model.generate(torch.tensor([prompt], device=device), do_sample=False, max_new_tokens=8,
                                  cache_implementation=cache)
            said[device, cache] = made[0, 4:].tolist()
settings = GenerationConfig(max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=2)
def batched(**options):
    options |= {"max_batch_tokens": 64}
    try:
        from transformers import ContinuousBatchingConfig
    except ImportError:  # transformers up to 5.0, where what is asked for has to fit the GPUs
        settings.max_batch_tokens, wanted = 64, {}
    else:
        wanted = {"continuous_batching_config": ContinuousBatchingConfig(**options)}
    found = model.generate_batch([prompt], settings, progress_bar=False, **wanted)
    return next(iter(found.values())).generated_tokens
said["batch"] = batched()
peak = innkeeper.stats()["nodes"]["sim:0"]["peak"]
innkeeper.manager().set_budget("sim:0", 512 << 10)
said["batch, paged"] = batched(num_blocks=64, page_size=16)
print(len(said), {tuple(tokens) for tokens in said.values()} == {tuple(said["cpu", "dynamic"])})
print("in what the node has", peak / (64 << 20) > 0.5)
"""
    assert scripts.plain(code)[0].splitlines()[-2:] == ["6 True", "in what the node has True"]


def test_what_the_user_has_set_stays(scripts: Scripts):
    code = "import os\nimport accelerate\nprint(accelerate.Accelerator().device)"
    assert scripts.plain(code)[0] == "managed\n"
    assert scripts.plain(code, ACCELERATE_TORCH_DEVICE="cpu")[0] == "cpu\n"


def test_a_script_that_requests_the_cpu_has_it(scripts: Scripts):
    script = (SCRIPTS / "finetune.py").read_text()
    script = script.replace("TrainingArguments(", "TrainingArguments(use_cpu=True, ", 1)
    code = """
print(trainer.args.device, trainer.accelerator.device, {p.device.type for p in trainer.model.parameters()})
from accelerate import Accelerator
from accelerate.state import AcceleratorState
AcceleratorState._reset_state(True)
print(Accelerator(cpu=True).device)
AcceleratorState._reset_state(True)
print(Accelerator().device)
"""
    assert scripts.plain(script + code)[0].splitlines()[-3:] == ["cpu cpu {'cpu'}", "cpu", "managed"]


def test_children_of_programs_without_such_a_library_inherit_nothing(scripts: Scripts):
    """They may not import innkeeper, and died of a device that they do not know."""
    child = "import accelerate; print(accelerate.Accelerator().device)"
    looks = "import importlib.util\nimportlib.util.find_spec('accelerate')\n"  # find_spec() imports nothing.
    looks += "try:\n    import fastai\nexcept ImportError:\n    pass\n"
    code = looks + f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)"
    assert scripts.plain(code)[0] == "cpu\n"


def test_pipelines_use_managed_and_one_on_the_cpu_is_said_once(scripts: Scripts):
    said, warned = scripts.plain(MODEL + PIPELINE.format(device="") + PIPELINE.format(device=", device=0"))
    assert said.splitlines()[0::2] == ["managed", "managed"] and warned == ""
    twice = MODEL + PIPELINE.format(device="") * 2
    said, warned = scripts.plain(twice, INNKEEPER_LIBRARIES="off")
    assert said.splitlines()[0] == "cpu"
    assert warned.count("\n") == 0 and "write pipeline(..., device='managed'), or run the script by" in warned


def test_the_switch_says_what_it_takes(scripts: Scripts, tmp_path: Path):
    done = scripts.python(scripts.write("import innkeeper"), INNKEEPER_LIBRARIES="of")
    assert done.stderr.splitlines()[-1] == 'ValueError: INNKEEPER_LIBRARIES: "of": expected on or off'


def test_trainer_and_accelerate_take_half_precision(scripts: Scripts):
    code = """
import torch
from accelerate.state import AcceleratorState
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
data = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(8)]
for wanted in ("bf16", "fp16", "tf32"):
    AcceleratorState._reset_state(True)
    torch.manual_seed(0)
    trainer = Trainer(GPT2LMHeadModel(config), TrainingArguments("out", max_steps=20, learning_rate=0.01,
        per_device_train_batch_size=4, report_to=[], disable_tqdm=True, save_strategy="no", **{wanted: True}),
        train_dataset=data)
    seen = set()
    trainer.model.lm_head.register_forward_hook(lambda module, inputs, output: seen.add(str(output.dtype)))
    learns = 1.0 < trainer.train().training_loss < 4.0
    scaler = trainer.accelerator.scaler
    print("|", wanted, trainer.args.device, *seen, learns, scaler and (scaler._device, scaler.is_enabled()))
"""
    said = [line[2:] for line in scripts.plain(code)[0].splitlines() if line.startswith("|")]
    assert said == [
        "bf16 managed torch.bfloat16 True None",
        "fp16 managed torch.float16 True ('managed', True)",
        "tf32 managed torch.float32 True None",
    ]


def test_libraries_that_have_changed_stay_as_they_are(scripts: Scripts, tmp_path: Path):
    others = {
        "accelerate/__init__.py": "",
        "accelerate/accelerator.py": "class Accelerator: pass",
        "accelerate/checkpointing.py": "",
        "transformers/__init__.py": "",
        "transformers/trainer.py": "class Trainer: pass",
        "transformers/pipelines/__init__.py": "",
        "transformers/pipelines/base.py": "class Pipeline:\n    def __init__(self): self.device = 'its own'",
        "safetensors/__init__.py": "",
        "lightning/__init__.py": "",
        "lightning/fabric/__init__.py": "",
        "lightning/fabric/connector.py": "",
        "lightning/fabric/strategies/__init__.py": "",
        "lightning/pytorch/__init__.py": "",
        "lightning/pytorch/accelerators.py": "",
    }
    for name, text in others.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    names = [name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in others]
    code = "".join(f"import {name}\n" for name in names)
    code += "accelerate.accelerator.Accelerator()\nprint(transformers.pipelines.base.Pipeline().device)"
    assert scripts.plain(code)[0] == "its own\n"


def test_processes_that_torchrun_starts_train_together(torchrun: Torchrun, tmp_path: Path):
    """Each has its part of the data, and the weights of one CPU process that took these parts together."""
    code = """
import copy
import innkeeper, torch
from accelerate import Accelerator
accelerator = Accelerator()
torch.manual_seed(0)
data = torch.randn(32, 8)
model = torch.nn.Linear(8, 8)
alone = copy.deepcopy(model)
optimizer, its = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, alone))
loader = torch.utils.data.DataLoader(data, batch_size=4)
together, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses, expected = [], []
for batch in loader:
    loss = (together(batch) - batch).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).tolist())
for pair in data.split(8):
    parts = [(alone(part) - part).square().mean() for part in pair.split(4)]
    for part in parts:
        (part / 2).backward()
    its.step()
    its.zero_grad()
    expected.append([part.item() for part in parts])
accelerator.wait_for_everyone()
same = all(torch.equal(a.cpu(), b) for a, b in zip(model.parameters(), alone.parameters()))
found = accelerator.device.type, accelerator.num_processes, len(losses), losses == expected, same
print(" ".join(map(str, found)) + "\\n", end="")  # at once: the processes write to one pipe
"""
    (tmp_path / "script.py").write_text(code)
    done = torchrun(str(tmp_path / "script.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["managed 2 4 True True"] * 2


def test_a_run_that_is_taken_up_with_dropout_goes_on_as_it_would_have(scripts: Scripts):
    code = """
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.5)
data = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(16)]
def weights(steps, resume):
    torch.manual_seed(0)
    trainer = Trainer(GPT2LMHeadModel(config), TrainingArguments("out", max_steps=steps, save_steps=2,
        lr_scheduler_type="constant", per_device_train_batch_size=2, report_to=[], disable_tqdm=True),
        train_dataset=data)
    trainer.train(resume_from_checkpoint=resume)
    return [p.detach().cpu() for p in trainer.model.parameters()]
whole = weights(4, None)
torch.rand(7, device="managed")
parts = weights(4, "out/checkpoint-2")
print("|", all(map(torch.equal, whole, parts)))
AcceleratorState._reset_state(True)
accelerator = Accelerator()
torch.manual_seed(3)
accelerator.save_state("state")
drawn = torch.rand(5, device="managed")
torch.rand(7, device="managed")
accelerator.load_state("state")
print("|", torch.equal(torch.rand(5, device="managed"), drawn))
"""
    assert [line for line in scripts.plain(code)[0].splitlines() if line[0] == "|"] == ["| True"] * 2


BEFORE = "from safetensors.torch import load_file\n"
# transformers asks so.
AFTER = "import importlib.util, innkeeper\nimportlib.util.find_spec('safetensors')\n"


@pytest.mark.parametrize("first", [BEFORE + AFTER, AFTER + BEFORE], ids=["before us", "after us"])
def test_files_of_safetensors_and_device_maps_go_to_managed(scripts: Scripts, tmp_path: Path, first: str):
    code = """
import torch
from safetensors import safe_open
from accelerate import init_empty_weights, infer_auto_device_map, load_checkpoint_and_dispatch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config).eval()
model.save_pretrained("saved")
tokens = torch.tensor([[1, 2, 3]])
wanted = model(tokens).logits
def same(loaded):
    found = loaded(tokens.to("managed")).logits
    return found.device.type, torch.equal(found.cpu(), wanted)
for device in ("managed", "managed:0", torch.device("managed"), "cpu"):
    files = load_file("saved/model.safetensors", device=device)
    assert all(torch.equal(x.cpu(), model.state_dict()[name]) for name, x in files.items())
    print({x.device.type for x in files.values()})
with safe_open("saved/model.safetensors", "pt", device="managed") as file:
    print(file.get_slice("transformer.wte.weight")[2:4].device.type)
for device_map in ("managed", "auto", {"": "managed"}):
    print(same(AutoModelForCausalLM.from_pretrained("saved", device_map=device_map)))
parts = dict.fromkeys(["wte", "wpe", "h.0", "ln_f"], "managed") | {"h.1": "disk"}
parts = {f"transformer.{name}": where for name, where in parts.items()} | {"lm_head": "managed"}
print(same(AutoModelForCausalLM.from_pretrained("saved", device_map=parts, offload_folder="off")))
with init_empty_weights():
    empty = GPT2LMHeadModel(config)
empty.tie_weights()
print(same(load_checkpoint_and_dispatch(empty, "saved", device_map="auto").eval()))
print(dict(infer_auto_device_map(model)), dict(infer_auto_device_map(model, max_memory={"cpu": "1GiB"})))
"""
    done = scripts.python(scripts.write(first + code), INNKEEPER_NODES="sim:1x64MiB,host:1GiB")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *["{'managed'}"] * 3,
        "{'cpu'}",
        "managed",
        *["('managed', True)"] * 5,
        "{'': 0} {'': 'cpu'}",
    ]


def test_trainer_on_the_cpu_is_said(scripts: Scripts):
    script = (SCRIPTS / "finetune.py").read_text()
    _, warned = scripts.plain(script, ACCELERATE_TORCH_DEVICE="cpu")
    assert "transformers computes on the CPU" in warned and "ACCELERATE_TORCH_DEVICE" in warned


@pytest.mark.parametrize(
    "code",
    [
        MODEL + "print(model(torch.tensor([[1, 2]])).logits.shape)",  # The script's own call, on the CPU.
        "import torch\ntorch.nn.Linear(2, 2)(torch.ones(2))",  # Uses none of the libraries.
        # Uses something managed.
        MODEL + "torch.ones(1, device='managed') + 1\n" + PIPELINE.format(device=""),
    ],
    ids=["own loop", "no library", "both"],
)
def test_nothing_is_said_where_the_program_chose(scripts: Scripts, code: str):
    assert scripts.plain(code)[1] == ""


def test_the_look_ends(scripts: Scripts):
    code = """
import accelerate, torch
hooks = torch.nn.modules.module._global_forward_pre_hooks
print(len(hooks))
torch.ones(1, device="managed") + 1
torch.nn.Linear(1, 1)(torch.ones(1))
print(len(hooks))
"""
    assert scripts.plain(code)[0] == "1\n0\n"


def test_batch_size_finders_know_our_out_of_memory(scripts: Scripts):
    """By the text of the error, as each of them looks for CUDA's."""
    code = """
import torch
from accelerate.utils import find_executable_batch_size
tried = []
@find_executable_batch_size(starting_batch_size=64)
def train(batch_size):
    tried.append(batch_size)
    innkeeper.manager().soft_placement = False
    return torch.ones(batch_size, 1 << 20, device="managed").sum().item() / (1 << 20)
print(train(), tried)
try:
    torch.ones(64, 1 << 20, device="managed")
except RuntimeError as error:
    print(len(error.args), "CUDA out of memory." in error.args[0], error.args[0].count("CUDA"))
"""
    tried = "15.0 [64, 57, 51, 45, 40, 36, 32, 28, 25, 22, 19, 17, 15]"
    if metadata.version("accelerate").startswith("1.4."):  # The oldest version halves.
        tried = "8.0 [64, 32, 16, 8]"
    assert scripts.plain(code)[0] == f"{tried}\n1 True 1\n"
