"""stats(): objects with attributes that are also read-only mappings, as scripts read them."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Mapping
from typing import Any

import innkeeper
import pytest
from innkeeper import _C, NodeStats, PeriodStats, Stats

import torch

PERIOD = {
    "operators": 4,
    "bytes_planned": 8,
    "bytes_short": 16,
    "bytes_fetched": 8,
    "seconds": None,
    "kernel_seconds": 0.5,
}


def example(**changed: Any) -> Stats:
    return Stats.of(_C.stats() | changed)


def test_attributes_and_keys_say_the_same():
    x = torch.ones(1000, device="managed")
    now = innkeeper.stats()
    plain = _C.stats()
    assert list(now) == list(plain) == [field.name for field in dataclasses.fields(Stats)]
    assert isinstance(now, Stats) and isinstance(now, Mapping)
    assert now.ops == now["ops"] and now.get("ops") == now.ops and now.get("nothing", 7) == 7
    for name, node in now["nodes"].items():
        assert isinstance(node, NodeStats) and node is now.nodes[name]
        assert list(node) == list(plain["nodes"][name])
        assert node.resident == node["resident"] >= 0
    assert sum(node.resident for node in now.nodes.values()) >= x.nbytes
    assert innkeeper.manager().stats().keys() == now.keys()


def test_a_period_is_one_too():
    assert example(period=None).period is None
    now = example(period=PERIOD)
    assert isinstance(now.period, PeriodStats) and now.period.operators == now["period"]["operators"] == 4
    assert dict(now.period) == PERIOD and now.period.seconds is None


def test_they_compare_as_mappings_do():
    plain = _C.stats() | {"period": PERIOD}
    now = Stats.of(plain)
    assert now == plain and dict(now) == plain and now == Stats.of(plain)
    assert now != plain | {"ops": -1}
    assert copy.deepcopy(now) == now and pickle.loads(pickle.dumps(now)) == now
    assert isinstance(pickle.loads(pickle.dumps(now)).nodes, Mapping) and isinstance(copy.copy(now), Stats)


def test_nothing_can_be_written():
    now = example(period=PERIOD)
    changes: dict[str, tuple[Any, ...]] = {
        "__setitem__": ("ops", 0),
        "__delitem__": ("ops",),
        "__ior__": ({"ops": 0},),
        "update": ({"ops": 0},),
        "setdefault": ("new", 1),
        "pop": ("ops",),
        "popitem": (),
        "clear": (),
    }
    for mapping in (now, now.nodes, now.period, next(iter(now.nodes.values()))):
        for name, arguments in changes.items():
            with pytest.raises(TypeError, match="read-only"):
                getattr(mapping, name)(*arguments)
    with pytest.raises(dataclasses.FrozenInstanceError):
        now.ops = 0  # type: ignore[misc]


def test_plain_dicts_for_json():
    now = example(period=PERIOD)
    plain = now.as_dict()
    assert type(plain) is dict and type(plain["nodes"]) is dict and type(plain["period"]) is dict
    assert all(type(node) is dict for node in plain["nodes"].values())
    assert json.loads(json.dumps(plain)) == plain == now
    assert json.loads(json.dumps(now)) == plain  # Scripts do so.
    plain["ops"] = -1
    assert now.ops >= 0


def test_they_print_their_names_and_values():
    now = example(period=PERIOD)
    assert repr(now).startswith(
        f"Stats(ops={now.ops}, fetches="
    ) and "period=PeriodStats(operators=4" in repr(now)
    node = next(iter(now.nodes.values()))
    assert repr(node).startswith("NodeStats(budget=") and repr(node) in repr(now)


def test_an_unknown_key_is_an_error_and_a_renamed_one_says_its_name():
    with pytest.raises(KeyError, match="'round' is called 'period' now"):
        innkeeper.stats()["round"]
    with pytest.raises(KeyError, match="nothing"):
        innkeeper.stats()["nothing"]
    with pytest.raises(AttributeError, match="round is called period now"):
        innkeeper.stats().round  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        innkeeper.stats().nothing  # type: ignore[attr-defined]  # noqa: B018
