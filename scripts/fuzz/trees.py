"""Mutations of JSON: values of another type, keys too few or too many, depth, numbers that nobody writes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

#: Stands for a part that no parsed value can be: it becomes the text beside it.
_RAW = {
    "@deep@": "[" * 100_000 + "]" * 100_000,
    "@deep objects@": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "@huge@": "1" + "0" * 400,
    "@long@": "9" * 5_000,
    "@infinite@": "1e999",
    "@twice@": '{"name": "a", "name": ["b"]}',
    "@surrogate@": '"\\ud800"',
}
_MOST = 3
#: Levels of lists that Python reads and its recursive functions may not.
_DEEP = 600


def mutated(rng: random.Random, text: bytes) -> bytes:
    """A JSON text with one to three changes. Raises ValueError for another text."""
    tree = json.loads(text)
    for _ in range(rng.randint(1, _MOST)):
        tree = _changed(rng, tree)
    return _written(tree)


def _written(tree: Any) -> bytes:
    try:
        text = json.dumps(tree)
    except RecursionError:
        text = _RAW["@deep@"]
    for mark, raw in _RAW.items():
        text = text.replace(json.dumps(mark), raw)
    return text.encode()


def _changed(rng: random.Random, tree: Any) -> Any:
    places = [*every_place(tree)]
    if not places or rng.random() < 0.02:
        return _strange(rng)
    holder, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind <= 2:
        holder[key] = _strange(rng)
    elif kind == 3:
        other, found = rng.choice(places)
        holder[key] = copy.deepcopy(other[found])
    elif kind == 4:
        other, found = rng.choice(places)
        holder[key], other[found] = copy.deepcopy(other[found]), holder[key]
    elif kind == 5:
        del holder[key]
    elif isinstance(holder, list):
        holder[:] = (holder[:key] + [copy.deepcopy(holder[key])] * 2 + holder[key:])[:1000]
    elif kind == 6:
        holder[_name(rng, places)] = holder.pop(key)
    else:
        holder[_name(rng, places)] = copy.deepcopy(holder[key])
    return tree


def every_place(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every list or object with one of its keys."""
    todo = [tree]
    while todo:
        value = todo.pop()
        keys = range(len(value)) if isinstance(value, list) else [*value] if isinstance(value, dict) else ()
        for key in keys:
            yield value, key
            todo.append(value[key])


def _name(rng: random.Random, places: list[tuple[Any, Any]]) -> str:
    """A key that stands somewhere in the tree, or one that nobody expects."""
    known = [key for _, key in places if isinstance(key, str)]
    return rng.choice([*known, "", "extra", "\n", "a" * 300])


def _strange(rng: random.Random) -> Any:
    deep: Any = "x"
    for _ in range(_DEEP):
        deep = [deep]
    plain = [None, True, False, 0, -1, 1, 1.5, 2**31, 2**63, 10**30, float("nan"), float("-inf")]
    texts = [
        "",
        "x",
        "a" * 5_000,
        "\u0000",
        "a\nb",
        "../../x",
        "NaN",
        "\U0001f600",
        "LSTM",
        "CuDNNGRU",
        "Model",
    ]
    trees = [
        [],
        {},
        [[]],
        [1, "a"],
        {"name": None},
        {"class_name": "x"},
        {"class_name": 1, "config": []},
        deep,
    ]
    trees.append({"class_name": "LSTM", "config": {}})
    return copy.deepcopy(rng.choice([*plain, *texts, *trees, *_RAW]))
