"""Libraries that choose a device themselves use managed, or it is said that they do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_scripts import SCRIPTS, managed, python

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


def plain(folder: Path, code: str, **environment: str) -> tuple[str, str]:
    """What a script says that imports innkeeper itself, and what it warns of."""
    (folder / "script.py").write_text("import innkeeper\n" + code)
    done = python(folder, "script.py", INNKEEPER_NODES="sim:1x64MiB,host:1GiB", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, "\n".join(
        line for line in done.stderr.splitlines() if "innkeeper is imported" in line
    )


def test_pipelines_and_device_maps_use_managed_in_a_managed_run(tmp_path: Path):
    (tmp_path / "script.py").write_text(MODEL + PIPELINE.format(device="") + AUTO)
    on_cpu = python(tmp_path, "script.py")
    done, stats = managed(tmp_path, "sim:2x2GiB,host:1GiB", "script.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("cuda:0", "cpu") == on_cpu.stdout and done.stdout.count("cuda:0") == 2
    assert stats["ops"] > 0 and stats["nodes"]["sim:0"]["peak"] > 0


def test_trainer_uses_managed_after_a_plain_import(tmp_path: Path):
    script = (
        SCRIPTS / "finetune.py"
    ).read_text() + "\nprint(trainer.args.device, innkeeper.stats()['ops'] > 0)"
    said, warned = plain(tmp_path, script)
    assert said.splitlines()[-1] == "managed True" and warned == ""


def test_what_somebody_has_set_stays(tmp_path: Path):
    code = "import os\nimport accelerate\nprint(accelerate.Accelerator().device)"
    assert plain(tmp_path, code)[0] == "managed\n"
    assert plain(tmp_path, code, ACCELERATE_TORCH_DEVICE="cpu")[0] == "cpu\n"


def test_children_of_programs_without_such_a_library_inherit_nothing(tmp_path: Path):
    """They may not import innkeeper, and died of a device that they do not know."""
    child = "import accelerate; print(accelerate.Accelerator().device)"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)"
    assert plain(tmp_path, code)[0] == "cpu\n"


def test_a_pipeline_on_the_cpu_is_said_once_with_what_to_write(tmp_path: Path):
    said, warned = plain(tmp_path, MODEL + PIPELINE.format(device="") * 2)
    assert said.splitlines()[0] == "cpu"
    assert warned.count("\n") == 0 and "write pipeline(..., device='managed'), or run the script by" in warned
    said, warned = plain(tmp_path, MODEL + PIPELINE.format(device=", device='managed'"))
    assert said.splitlines()[0] == "managed" and warned == ""


def test_trainer_on_the_cpu_is_said(tmp_path: Path):
    script = (SCRIPTS / "finetune.py").read_text()
    _, warned = plain(tmp_path, script, ACCELERATE_TORCH_DEVICE="cpu")
    assert "transformers computes on the CPU" in warned and "ACCELERATE_TORCH_DEVICE" in warned


@pytest.mark.parametrize(
    "code",
    [
        MODEL + "print(model(torch.tensor([[1, 2]])).logits.shape)",  # the script's own call, on the CPU
        "import torch\ntorch.nn.Linear(2, 2)(torch.ones(2))",  # none of the libraries
        MODEL + "torch.ones(1, device='managed') + 1\n" + PIPELINE.format(device=""),  # something is managed
    ],
    ids=["own loop", "no library", "both"],
)
def test_nothing_is_said_where_the_program_chose(tmp_path: Path, code: str):
    assert plain(tmp_path, code)[1] == ""


def test_the_look_ends(tmp_path: Path):
    code = """
import accelerate, torch
hooks = torch.nn.modules.module._global_forward_pre_hooks
print(len(hooks))
torch.ones(1, device="managed") + 1
torch.nn.Linear(1, 1)(torch.ones(1))
print(len(hooks))
"""
    assert plain(tmp_path, code)[0] == "1\n0\n"
