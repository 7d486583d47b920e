"""The options of a conversion, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from os import PathLike, fspath, sep
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

from cudnn_convert import requirements
from cudnn_convert.context import OF_PROCESS, Limits, within
from cudnn_convert.errors import UsageError
from cudnn_convert.formats import DEFAULT, FORMATS, Format
from cudnn_convert.text import flag_of, flags_of

WEIGHTS: Final = ("auto", "canonical", "raw", "ema")
LOWERINGS: Final = ("fast", "portable", "fused")
MODES: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu")
SEARCHES: Final = ("greedy", "beam", "sample")
#: The value of `--pad-mask` with which a mask is an input of the search.
MASK_OF_CALL: Final = "input"

#: How much of its letters a suffix shares with the one that it stands for: .onxx and .onnx, not .pt and .pb.
_NEAR: Final = 0.7
_SPEC: Final = "[KEY=]TENSOR[[shape]],..."
_ALONE: Final = "sources without a graph"
_KERAS: Final = "sources of Keras"
_CHECKPOINT: Final = "--format checkpoint"
_DECODER: Final = "a decoder in the graph"


def _flag(default: Any, description: str = "", **metadata: Any) -> Any:
    """Make an option with metadata for the command line.

    `of`: the group by which commands take it; `section`: its title in the help; `metavar`; `choices`; `most`:
    the largest number. `reading`: it affects how a source is read, so a later verification needs it too.
    `vouched`: the user vouches for it, so each call must repeat it, and no artifact may set it.
    """
    return field(default=default, metadata=MappingProxyType({"help": description, **metadata}))


def _reading(default: Any, description: str, **metadata: Any) -> Any:
    return _flag(default, description, of="source", reading=True, **metadata)


def _searching(default: Any, description: str, **metadata: Any) -> Any:
    return _flag(default, description, of="target", section=_DECODER, reading=True, **metadata)


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of a conversion, by name. Raises UsageError for invalid values."""

    format: str = _flag(DEFAULT, choices=FORMATS)
    inputs: Sequence[str] = _reading((), "tensors to take; repeatable", metavar=_SPEC)
    outputs: Sequence[str] = _reading((), "tensors to give; repeatable", metavar=_SPEC)
    set: Sequence[str] = _reading((), "bind a constant; repeatable", metavar="TENSOR=VALUE")
    signature: str | None = _reading(None, "which signature; default serving_default", metavar="KEY")
    tag: str | None = _reading(
        None, "which graph of a SavedModel; default serve; '' for one without tags", metavar="TAG"
    )
    weights: str = _reading("auto", "which copy; default %(default)s", choices=WEIGHTS)
    forget_bias: float = _reading(
        0.0, "added to the forget gate of canonical LSTM biases; default 0", metavar="X"
    )
    gate_order: str = _reading("tf", "of the source; default %(default)s", choices=("tf", "lingvo", "miopen"))
    mode: str | None = _reading(None, "what the recurrence is", section=_ALONE, choices=MODES)
    layers: int | None = _reading(None, "how many", section=_ALONE, metavar="N")
    units: int | None = _reading(None, "of one direction", section=_ALONE, metavar="N")
    directions: int | None = _reading(None, "2 where it is bidirectional", section=_ALONE, most=2)
    layout: str | None = _reading(
        None, "first axis of inputs and outputs", section=_ALONE, choices=("time", "batch")
    )
    states: bool = _reading(False, "initial states as inputs, final states as outputs")
    lengths: bool = _reading(False, "take sequence_lengths too", section=_ALONE)
    architecture: Path | None = _flag(
        None,
        "the model of weights alone: Keras' JSON, or a graph.pbtxt or .meta for a checkpoint",
        of="source",
        section=_KERAS,
        metavar="FILE",
        vouched=True,
    )
    custom_objects: Sequence[str] = _flag(
        (),
        "a class that the model may be built with; repeatable",
        of="source",
        section=_KERAS,
        metavar="MODULE:NAME",
        vouched=True,
    )
    cell: str = _flag(
        "compatible",
        "whose LSTM variables to write",
        of="target",
        section=_CHECKPOINT,
        choices=("compatible", "lstm_block", "basic_lstm"),
    )
    rename: Sequence[str] = _flag(
        (), "a scope or a name; repeatable", of="target", section=_CHECKPOINT, metavar="OLD=NEW"
    )
    slots: bool = _flag(False, "keep optimizer slots, split per cell", of="target", section=_CHECKPOINT)
    opset: int = _flag(17, "of ONNX; default %(default)s", of="target")
    weights_dtype: str = _flag(
        "float32", "of matrices in an ONNX file", of="target", choices=("float32", "float16")
    )
    quantize: str | None = _flag(
        None, "what LSTMs of ONNX, or all of TensorFlow Lite, compute in", of="target", choices=("int8",)
    )
    max_error: float | None = _flag(
        None, "with --quantize: the largest error to accept on --data", of="target", metavar="X"
    )
    lowering: str = _flag(
        "fast",
        "of recurrences; fused is for microcontrollers; default %(default)s",
        of="target",
        choices=LOWERINGS,
    )
    steps: int | None = _flag(
        None,
        "with --lowering fused: of each call; with --decode: tokens of a sequence at most",
        of="target",
        reading=True,
        metavar="N",
    )
    jit: bool = _flag(False, "XLA compiles recurrences, for each shape anew", of="target")
    recurrences_only: bool = _flag(
        False, "of a graph with other ops: its recurrences as Keras layers", of="target"
    )
    decode: str | None = _searching(None, "search over what a model says of the next token", choices=SEARCHES)
    width: int | None = _searching(None, "beams of each row; default 8", metavar="N")
    end: int | None = _searching(None, "the token that ends a sequence; default none", metavar="TOKEN")
    pad: int = _searching(0, "what follows the end of a sequence; default 0", metavar="TOKEN")
    length_penalty: float = _searching(
        0.0, "ranks by score / ((5 + length) / 6) ** X; default 0", metavar="X"
    )
    top_k: int | None = _searching(None, "sample from the N most likely tokens", metavar="N")
    temperature: float = _searching(1.0, "of samples; default 1", metavar="X")
    history: bool = _searching(False, "beams: give tokens, parents and scores of each step too")
    pad_mask: str | None = _searching(
        None,
        "tokens that are never chosen, as 0,3,30-33; or input: a mask that each call gives",
        metavar="TOKENS",
    )
    initial_scores: bool = _searching(False, "beams: each call gives the scores that they begin with")
    token: str | None = _searching(None, "the input that takes tokens", metavar="TENSOR")
    logits: str | None = _searching(
        None,
        "the output of the next token's numbers; they are probabilities, log_probabilities or logits",
        metavar="TENSOR[=SCALE]",
    )
    force_convert: bool = _flag(False, "write a copy even of what is portable already", of="target")
    data: Path | Mapping[str, Any] | None = _flag(
        None,
        "real inputs to compare on: .npz, .npy, .tfrecord, .csv, .parquet, or a pattern of these",
        of="judge",
        metavar="PATTERN",
    )
    features: Sequence[str] = _flag(
        (),
        "what --data has for each input, where it has examples; or a file .json; repeatable",
        of="judge",
        metavar="KEY=TYPE[SHAPE],...",
    )
    batch: int | None = _flag(None, "examples of --data in a call; default 32", of="judge", metavar="N")
    limit_examples: int | None = _flag(
        None, "examples of --data to take; default 64", of="judge", metavar="N"
    )
    atol: float | None = _flag(None, "absolute tolerance; default by dtype and noise floor", of="judge")
    rtol: float | None = _flag(None, "relative tolerance; default by dtype and noise floor", of="judge")
    seed: int | None = _flag(None, "other random inputs; default the artifact's", of="judge", metavar="N")
    golden: Path | None = _flag(None, "a recording of the original, to judge by", of="golden", metavar="NPZ")
    verify: bool = True
    lineage: bool = False
    force: bool = False
    limit: Sequence[str] = _flag(
        (),
        f"what SOURCE may ask of this machine: {', '.join(limit.name for limit in fields(Limits))}; "
        "8G is 8*1024^3; repeatable",
        of="source",
        metavar="NAME=NUMBER",
        vouched=True,
    )
    trust: bool = _flag(
        False, "run more than arithmetic, and follow links out of SOURCE", of="source", vouched=True
    )

    @property
    def form(self) -> Format:
        """The format for the source."""
        form = FORMATS[self.format]
        return form.of_recurrences() if self.recurrences_only else form

    @property
    def draws_inputs(self) -> bool:
        """True if a proof draws random inputs."""
        return self.verify and self.data is None and self.golden is None

    @property
    def has_fixed_sizes(self) -> bool:
        """True if the artifact takes inputs of fixed sizes alone."""
        return self.lowering == "fused"

    @property
    def rows(self) -> int:
        """The rows of each call, if the artifact fixes an open number of rows."""
        return self.batch or 1

    @property
    def streams(self) -> bool:
        """True if states become inputs and outputs, as needed by a search."""
        return self.states or self.decode is not None

    @property
    def masked_tokens(self) -> tuple[int, ...]:
        """The tokens excluded from a search, in order.

        Empty where each call gives its mask.
        """
        return () if self.pad_mask in (None, MASK_OF_CALL) else _parse_tokens(str(self.pad_mask))

    @property
    def custom_class_names(self) -> frozenset[str]:
        """The names of the classes in `custom_objects`."""
        return frozenset(item.partition(":")[2] for item in self.custom_objects)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Make options from the keywords of a library call. Raises UsageError.

        None means not given.
        """
        values = {name: _plain(name, value) for name, value in given.items() if value is not None}
        # One item may come without its list: a string is no sequence of flags.
        repeated = {name for name, kind in KINDS.items() if kind is list} & values.keys()
        values |= {name: [values[name]] for name in repeated if isinstance(values[name], str)}
        for item in values.get("limit", ()):
            if item.partition("=")[0] in OF_PROCESS:
                expected = "a limit of reading, for a call has no process of its own"
                raise UsageError(f"--limit: expected {expected}, found {item!r}")
        paths = {
            name: Path(value)
            for name, value in values.items()
            if KINDS[name] is Path and not (name == "data" and isinstance(value, Mapping))
        }
        return cls(**values | paths)

    def non_defaults(self) -> dict[str, Any]:
        """Return the options different from the defaults."""
        values = ((option, getattr(self, option.name)) for option in fields(self))
        return {
            option.name: list(value) if isinstance(value, tuple) else value
            for option, value in values
            if value != option.default and value not in ((), [])
        }

    def to_json(self) -> dict[str, Any]:
        """Return the options different from the defaults, for another process."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in self.non_defaults().items()
        }

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Options:
        """Read the options returned by `to_json`."""
        options: dict[str, Any] = {
            name: Path(value) if KINDS[name] is Path else value for name, value in values.items()
        }
        return cls(**options)

    def __post_init__(self) -> None:
        for option in fields(self):
            value, flag = getattr(self, option.name), flag_of(option.name)
            choices, most = option.metadata.get("choices"), option.metadata.get("most")
            if choices and value not in choices and (value is not None or option.default is not None):
                expected = f"{'one of ' * (len(choices) > 1)}{', '.join(choices)}"
                raise UsageError(f"{flag}: expected {expected}, found {value!r}")
            if option.name in _COUNTS and value is not None and not 1 <= value <= (most or value):
                expected = f"1 or {most}" if most else "at least 1"
                raise UsageError(f"{flag}: expected {expected}, found {value}")
        for item in self.custom_objects:
            module, colon, name = item.partition(":")
            if not (module and colon and name):
                raise UsageError(f"--custom-objects: expected MODULE:NAME, found {item!r}")
        if self.golden is not None and self.data is not None:
            raise UsageError("--golden cannot be combined with --data: it has its own inputs; leave one out")
        self._check_data()
        self._check_search()
        Limits.of(self.limit)
        if not math.isfinite(self.forget_bias):
            raise UsageError(f"--forget-bias: expected a number, found {self.forget_bias}")
        if self.max_error is not None and not 0 < self.max_error < math.inf:
            raise UsageError(f"--max-error: expected a number above 0, found {self.max_error}")
        if self.seed is not None and not is_seed(self.seed):
            raise UsageError(f"--seed: expected a whole number from 0 to 2^63 - 1, found {self.seed}")
        for flag, bound in (("--atol", self.atol), ("--rtol", self.rtol)):
            if bound is not None and not 0 <= bound < math.inf:
                raise UsageError(f"{flag}: expected a number of at least 0, found {bound}")

    def _check_data(self) -> None:
        """Raise UsageError for flags of examples if `data` is missing."""
        examples = ("features", "batch", "limit_examples")
        if self.data is None and (given := [flag_of(name) for name in examples if getattr(self, name)]):
            raise UsageError(f"{given[0]} needs --data: the examples that it is about")

    def _check_search(self) -> None:
        """Check the flags of a search against the kind. Raises UsageError."""
        for option in fields(self):
            kinds, value = _KINDS_OF_SEARCH.get(option.name, ()), getattr(self, option.name)
            if kinds and value != option.default and self.decode not in kinds:
                expected = f"expected --decode {' or '.join(kinds)}"
                actual = f"found {self.decode or 'no --decode'}; leave out {flag_of(option.name)}"
                raise UsageError(f"{flag_of(option.name)}: {expected}, {actual}")
        if self.steps is not None and self.decode is None and not self.has_fixed_sizes:
            expected = f"expected --decode {' or '.join(SEARCHES)}, or --lowering fused"
            raise UsageError(f"--steps: {expected}, found neither; leave out --steps")
        if self.decode is not None and self.steps is None:
            raise UsageError(f"--decode {self.decode} needs --steps: how many tokens a sequence has at most")
        if self.end is not None and self.end < 0:
            raise UsageError(f"--end: expected a token, a whole number of at least 0, found {self.end}")
        if not -(2**31) <= self.pad < 2**31:
            raise UsageError(f"--pad: expected a whole number of 32 bits, found {self.pad}")
        if self.pad_mask not in (None, MASK_OF_CALL):
            _parse_tokens(str(self.pad_mask))
        if not math.isfinite(self.length_penalty):
            raise UsageError(f"--length-penalty: expected a number, found {self.length_penalty}")
        if not 0 < self.temperature < math.inf:
            raise UsageError(f"--temperature: expected a number above 0, found {self.temperature}")


#: The type of each option that is given: a `list` for one that is repeated.
KINDS: Final[Mapping[str, type]] = {
    option.name: {"Sequence[str]": list, "Path": Path, "int": int, "float": float, "bool": bool, "str": str}[
        str(option.type).partition(" | ")[0]
    ]
    for option in fields(Options)
}
READING: Final = tuple(option.name for option in fields(Options) if "reading" in option.metadata)
VOUCHED: Final = tuple(option.name for option in fields(Options) if "vouched" in option.metadata)
_COUNTS: Final = frozenset(
    {"layers", "units", "directions", "steps", "width", "top_k", "batch", "limit_examples"}
)
#: The searches that each option belongs to.
_KINDS_OF_SEARCH: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("end", "pad", "pad_mask", "token", "logits"), SEARCHES),
    **dict.fromkeys(("width", "length_penalty", "history", "initial_scores"), ("beam",)),
    **dict.fromkeys(("top_k", "temperature"), ("sample",)),
}


def _parse_tokens(text: str) -> tuple[int, ...]:
    """Parse tokens and ranges of tokens, such as `0,3,30-33`. Raises UsageError."""
    tokens: set[int] = set()
    for item in text.split(","):
        matched = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", item.strip())
        if matched is None:
            expected = f"expected {MASK_OF_CALL}, or tokens such as 0,3,30-33"
            raise UsageError(f"--pad-mask: {expected}, found {text!r}")
        first, last = int(matched[1]), int(matched[2] or matched[1])
        if last < first:
            raise UsageError(f"--pad-mask: expected a range that rises, found {item.strip()}")
        tokens.update(range(first, last + 1))
    return tuple(sorted(tokens))


def _plain(name: str, value: Any) -> Any:
    """Turn a library call's value into Python's own, including NumPy scalars. Raises UsageError."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    kind = KINDS[name]
    if kind in (int, float) and (isinstance(value, bool) or not isinstance(value, _NUMBERS[kind][0])):
        raise UsageError(f"{flag_of(name)}: expected {_NUMBERS[kind][1]}, found {value!r}")
    return kind(value) if kind in (int, float) else value


#: What such an option takes, and as words.
_NUMBERS: Final[Mapping[type, tuple[type, str]]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
}


def list_flags(options: Options, names: Collection[str] = tuple(KINDS)) -> tuple[str, ...]:
    """Return the flags of options different from the defaults, and `--no-verify`.

    Arrays of a library call have no flag.
    """
    given = {
        name: value
        for name, value in options.non_defaults().items()
        if name in names and name in _FLAGS and not isinstance(value, Mapping)
    }
    return (*map("=".join, flags_of(given)), *(() if options.verify else ("--no-verify",)))


#: The options that a flag of their name sets.
_FLAGS: Final = frozenset(option.name for option in fields(Options) if option.metadata)

#: Of a whole number there, and of a seed.
_BITS: Final = 63


def is_seed(value: Any) -> bool:
    """Return True if a value is an integer fit to seed random inputs."""
    return type(value) is int and value >= 0 and value.bit_length() <= _BITS


def choose_format(out: str | PathLike[str], given: str | None) -> str:
    """Return the format of OUT: `given`, else the suffix's format, else a SavedModel.

    A folder has no suffix, ends in a slash, is there already, or has its format `given`. Raises UsageError
    where OUT has the suffix of another format than the one given, or one that is no format's.
    """
    text = fspath(out)
    path, is_folder = Path(text), text.endswith(("/", sep))
    named = next((name for name, form in FORMATS.items() if form.has_suffix(path)), None)
    if named and is_folder:
        cure = "leave out the slash, or the suffix"
        raise UsageError(
            f"OUT {text}: expected a folder without the suffix of a format, found {path.suffix}; {cure}"
        )
    if given in FORMATS and named not in (given, None):
        expected = f"no suffix of another format with --format {given}"
        cure = "leave out --format, or rename OUT"
        raise UsageError(
            f"OUT {text}: expected {expected}, found {path.suffix}, the suffix of {named}; {cure}"
        )
    if named and FORMATS[named].is_keras3 and path.suffix not in FORMATS[named].suffixes:
        name = path.with_suffix(path.suffix.lower()).name
        raise UsageError(
            f"OUT {text}: expected {path.suffix.lower()}, the only suffix that Keras 3 loads, "
            f"found {path.suffix}; name it {name}"
        )
    # A version at the end of a folder's name begins with a digit: `model-1.2`.
    if path.suffix[1:2].isalpha() and not (named or is_folder or path.is_dir()):
        _refuse_suffix(text, path, given)
    return given or named or DEFAULT


def _refuse_suffix(text: str, path: Path, given: str | None) -> None:
    """Refuse an unknown suffix, except with a given format and a suffix unlike all known."""
    known = [suffix for form in FORMATS.values() for suffix in form.suffixes]
    near = get_close_matches(path.suffix.lower(), known, n=1, cutoff=_NEAR)
    if given and not near:
        return
    closest = f"name it {path.with_suffix(near[0]).name}" if near else f"choose one of {', '.join(known)}"
    raise UsageError(
        f"OUT {text}: expected the suffix of a format or none, found {path.suffix}; {closest}, "
        f"or write {path.name}/ for a folder"
    )


def from_provenance(recorded: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return the options of `READING` in a provenance. Raises UsageError for invalid values.

    One that is not there has its default: the artifact is older than the option.
    """
    defaults = {name: Options.__dataclass_fields__[name].default for name in READING}
    known = {name: value for name, value in recorded.items() if name in defaults}
    for name, value in known.items():
        texts = value if isinstance(value, list) else ()
        is_huge = isinstance(value, int) and value.bit_length() > _BITS
        is_kind = type(value) in (KINDS[name], int if KINDS[name] is float else None)
        is_unset = value is None and defaults[name] is None
        if is_huge or not (is_kind or is_unset) or not all(isinstance(text, str) for text in texts):
            expected = "expected a value as this tool writes it"
            raise UsageError(f"{where}: {flag_of(name)}: {expected}, found {value!r}")
    return defaults | known


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def with_limits(work: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Run `work` under the limits of the Options among its arguments, beside a TensorFlow that is tried."""

    @wraps(work)
    def run_within_limits(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        (options,) = (argument for argument in given if isinstance(argument, Options))
        requirements.check_versions()
        with within(Limits.of(options.limit)), requirements.name_missing():
            return work(*given, **named)

    return run_within_limits
