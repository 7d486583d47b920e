"""Reads SavedModels: `saved_model.pb` or `.pbtxt`, `variables/` and `assets/`.

TensorFlow 1 (`tf.saved_model.Builder`, Estimators, `simple_save`; 0.12-1.15) stores graphs: one file may have
several MetaGraphs over the same variables, each with a set of tags. TensorFlow 2 (`tf.saved_model.save`,
Keras) stores functions, an object graph, and a small graph that calls the functions.
Source: tensorflow v1.15.0 core/protobuf/saved_model.proto, python/saved_model/loader_impl.py; v2.21.0
python/saved_model/save.py.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from cudnn_convert.errors import AGAIN, AmbiguousSourceError, ReadError, UnsupportedModelError, UsageError
from cudnn_convert.model import Checkpoint, Model, Tensor
from cudnn_convert.read import checks, dialects, graph_def, tensorbundle, variable_keys

KIND: Final = "TensorFlow SavedModel"
TAGS: Final = True
_FILES: Final = ("saved_model.pb", "saved_model.pbtxt")
_SERVE: Final = "serve"


def recognise(path: Path) -> Path | None:
    """Return the folder of a SavedModel from the folder, `saved_model.pb` or `.pbtxt`.

    Returns None for other paths.
    """
    folder = path.parent if path.name in _FILES and path.is_file() else path
    return folder if any((folder / name).is_file() for name in _FILES) else None


def read(folder: Path, tag: str | None) -> Model:
    """Read the MetaGraph of a SavedModel with exactly the given tags.

    `tag` is one tag or several separated by commas, empty for none; None means `serve`. Raises ReadError,
    UsageError, AmbiguousSourceError, UnsupportedModelError.
    """
    saved = _parse(folder)
    meta, notes = _choose(folder, saved.meta_graphs, tag)
    if not meta.graph_def.node:
        raise ReadError(folder, "graph_def", expected="nodes", found="none", advice=AGAIN)
    checks.require(folder, meta.graph_def)
    prefix = folder / "variables" / "variables"
    tensors = tensorbundle.tensors(prefix) if any((folder / "variables").glob("*")) else {}
    of_objects = bool(meta.object_graph_def.nodes)
    if of_objects and len(saved.meta_graphs) > 1:
        actual = f"{len(saved.meta_graphs)}, one of them with objects"
        reason = f"meta_graphs: expected one in a file with objects, found {actual}; save the model with one"
        raise UnsupportedModelError(folder, [reason])
    files = graph_def.list_assets(meta, folder)
    values: dict[str, Tensor]
    renamed = variable_keys.Values()
    if of_objects:
        graph = variable_keys.plain(meta.graph_def, files)
        values = variable_keys.find_restored_variables(meta, tensors)
    else:
        renamed = variable_keys.find(meta, tensors)
        graph, values = meta.graph_def, {**tensors, **renamed.values}
        variable_keys.name_handles(graph, values)
    return Model(
        path=folder,
        kind=KIND,
        graph=graph,
        variables=values,
        keys=renamed.keys,
        canonical=dialects.find(prefix, tensors),
        signatures=graph_def.signatures(meta),
        notes=(*notes, *renamed.notes),
        assets=files,
        initializers=graph_def.initializers(meta),
        saved=saved if of_objects else None,
        checkpoint=None if of_objects else Checkpoint(meta, prefix),
    )


def _parse(folder: Path) -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    path = next(folder / name for name in _FILES if (folder / name).is_file())
    saved = saved_model_pb2.SavedModel()
    try:
        if path.suffix == ".pb":
            saved.ParseFromString(path.read_bytes())
        else:
            text_format.Parse(path.read_text(encoding="utf-8"), saved)
    except (DecodeError, UnicodeDecodeError, RecursionError, text_format.ParseError) as cause:
        actual = "a damaged or incomplete one"
        raise ReadError(path, "file", expected="a SavedModel", found=actual, advice=AGAIN) from cause
    if not saved.meta_graphs:
        raise ReadError(path, "meta_graphs", expected="at least one MetaGraph", found="none", advice=AGAIN)
    return saved


def _choose(folder: Path, metas: Any, tag: str | None) -> tuple[Any, tuple[str, ...]]:
    """Choose the MetaGraph with exactly the requested tags, like TensorFlow's loader.

    Where nothing is requested and none has the tag `serve`, it is the only one, or the one without tags: of
    TensorFlow Hub's modules that is inference, and the others are for training.
    Source: tensorflow_hub v0.12.0 tensorflow_hub/module.py, Module.__init__ `tags`.
    """
    wanted = frozenset(filter(None, (_SERVE if tag is None else tag).split(",")))
    fitting = [meta for meta in metas if frozenset(meta.meta_info_def.tags) == wanted]
    if len(fitting) == 1:
        return fitting[0], ()
    if tag is None and not fitting:
        without_tags = [meta for meta in metas if not meta.meta_info_def.tags]
        start = f"no MetaGraph has the tag {_SERVE}; took"
        if len(metas) == 1:
            return metas[0], (f"{start} the only one, of {_list_tags(metas)}",)
        if len(without_tags) == 1:
            return without_tags[0], (f"{start} the one without tags; --tag chooses another",)
    if tag is not None and not fitting:
        raise UsageError(f"{folder}: --tag: expected one of {_list_tags(metas)}, found {tag or 'no tags'}")
    reason = f"MetaGraphs: expected one with the tags {tag or _SERVE}, found {_list_tags(metas)}"
    sets = Counter(frozenset(meta.meta_info_def.tags) for meta in metas)
    is_choice = any(tags and count == 1 for tags, count in sets.items())
    cure = "choose with --tag" if is_choice else "save them again with tags that differ"
    raise AmbiguousSourceError(folder, [f"{reason}; {cure}"])


def _list_tags(metas: Any) -> str:
    return " | ".join(",".join(meta.meta_info_def.tags) or "no tags" for meta in metas)
