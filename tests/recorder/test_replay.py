"""cuDNN's own recordings, replayed: every case against `cudnn_convert.reference`, every offset against
`cudnn_convert.weights.lazy`'s layout.

`python scripts/record_cudnn.py` on a machine with a CUDA device makes the recordings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_cudnn as rec
from standin import StandInDevice, compute

from cudnn_convert.verification import effort

DATA = Path(__file__).resolve().parents[1] / "data" / "cudnn"
OUTPUTS = tuple(f"outputs_{mode}.npz" for mode in rec.MODES)
FILES = ("offsets.npz", *OUTPUTS, "gradients.npz")
#: How far a gradient may be from the reference's slope, relative to its length: some roundings of float32.
BOUND_OF_GRADIENTS = 1e-6

RECORDER = pytest.mark.slow("scripts/record_cudnn.py", "tests/recorder/")


def with_a_witness(names: Iterable[str], seen: str) -> list[Any]:
    """One each time, the others where the recorder changed."""
    return [pytest.param(name, marks=() if name == seen else RECORDER) for name in names]


def load(path: Path) -> tuple[dict[str, Any], dict[str, rec.Array]]:
    """The file's meta and its arrays."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    return json.loads(str(arrays.pop("meta"))), arrays


def case_of(entry: Mapping[str, Any]) -> rec.Case:
    fields = dict(entry["case"])
    return rec.Case(**{**fields, "network": rec.Network(**fields["network"])})


def run_reference(case: rec.Case, values: rec.Values) -> rec.Outputs:
    """What the package's reference gives in float64, but for the final states of rows of length 0.

    cuDNN writes zeros there; see `test_a_row_of_length_0_ends_with_zeros_on_a_device`.
    """
    h0, c0 = rec.initial_states(case, values)
    y, h, c = compute(case.network, values.blob, (values.x, h0, c0), case.row_lengths)
    h, c = (np.where(np.asarray(case.row_lengths)[:, None] == 0, 0, state) for state in (h, c))
    return rec.Outputs(y, h, c if case.network.mode == "lstm" else c[:0])


def values_at(arrays: Mapping[str, rec.Array], stem: str) -> rec.Values:
    return rec.Values(*(arrays[f"{stem}/{key}"] for key in rec.Values._fields))


def replay(case: rec.Case, arrays: Mapping[str, rec.Array]) -> float:
    """Distance of the recorded outputs of `case` from the reference on the recorded inputs."""
    wanted = run_reference(case, values_at(arrays, case.network.name))
    return rec.error_of(rec.Outputs(*(arrays[f"{case.name}/{key}"] for key in "yhc")), wanted)


def gradient_disagreements(path: Path) -> list[str]:
    """Every recorded gradient that is further from the reference's slope than rounding explains."""
    meta, arrays = load(path)
    assert meta["format"] == rec.FORMAT and meta["kind"] == "gradients"
    found = []
    for case in (case_of(entry) for entry in meta["cases"] if entry["status"] == "ok"):
        gradients = rec.Gradients(*(arrays[f"{case.name}/d{key}"] for key in rec.Gradients._fields))
        given = {key: arrays[f"{case.name}/{key}_gradient"] for key in "yhc"}
        for key, value in rec.output_gradients(case)._asdict().items():
            np.testing.assert_array_equal(given[key], value)
        values = values_at(arrays, case.name)
        for key, error in rec.slope_errors(case, values, gradients, run_reference).items():
            if not error <= BOUND_OF_GRADIENTS:
                found.append(f"{case.name}: d{key} is off by {error:.3g}")
    assert any(entry["status"] == "ok" for entry in meta["cases"]), f"{path}: no case ran"
    return found


def disagreements(path: Path) -> list[str]:
    """Every recorded case of a file that is further from the reference than rounding explains."""
    meta, arrays = load(path)
    assert meta["format"] == rec.FORMAT and meta["kind"] == "outputs"
    cases = [case_of(entry) for entry in meta["cases"] if entry["status"] == "ok"]
    assert cases, f"{path}: no case ran"
    errors = {case: replay(case, arrays) for case in cases}
    return [
        f"{case.name}: off by {error:.3g}, rounding explains {rec.noise_floor(case):.3g}"
        for case, error in errors.items()
        if not error <= rec.noise_floor(case)
    ]


def offset_disagreements(path: Path) -> list[str]:
    """Every network of an offsets file whose size or regions are not the formula's.

    cuDNN refuses a projection for anything but LSTM; any other refusal counts as a disagreement.
    """
    meta, arrays = load(path)
    assert meta["format"] == rec.FORMAT and meta["kind"] == "offsets"
    assert len(meta["networks"]) == len(rec.offset_networks())
    found = []
    for name, entry in meta["networks"].items():
        net = entry["network"]
        regions = arrays[name].tolist() if name in arrays else []
        verdict = rec.offset_verdict({**entry, "regions": regions})
        if verdict != "equal" and not (net["projection"] and net["mode"] != "lstm"):
            found.append(f"{name}: {verdict}")
    return found


def missing(folder: Path) -> list[str]:
    """Names of what a complete recording would have and `folder` has not."""
    found = [name for name in FILES if not (folder / name).exists()]
    heard = {
        entry["job"]: entry["status"]
        for name in FILES[1:]
        if name not in found
        for entry in load(folder / name)[0]["cases"]
    }
    for case in rec.output_cases() + rec.gradient_cases():
        name = "gradients.npz" if case.gradients else f"outputs_{case.network.mode}.npz"
        status = heard.get(case.name, "not in the file")
        if name not in found and status != "ok":
            found.append(f"{case.name}: {status}")
    return found


@pytest.mark.first("outputs_rnn_tanh.npz")
@pytest.mark.parametrize("name", OUTPUTS)
def test_recorded_outputs_are_the_reference_s(name: str) -> None:
    assert load(DATA / name)[0]["about"]["source"] == "device", "only a device's outputs are a recording"
    assert disagreements(DATA / name) == []


@pytest.mark.slow(
    "cudnn_convert/reference/", "scripts/record_cudnn.py", "tests/recorder/", "tests/data/cudnn/"
)
def test_recorded_gradients_are_the_reference_s_slopes() -> None:
    path = DATA / "gradients.npz"
    assert load(path)[0]["about"]["source"] == "device", "only a device's gradients are a recording"
    assert gradient_disagreements(path) == []


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_row_of_length_0_ends_with_zeros_on_a_device(name: str) -> None:
    """The one known difference: the reference and every artifact hand the initial state on.

    Keras sends batches with such rows round cuDNN, to a loop that keeps the state, and so does a stream whose
    rows end at different times.
    """
    meta, arrays = load(DATA / name)
    cases = [case for case in map(case_of, meta["cases"]) if 0 in case.row_lengths]
    assert {case.lengths for case in cases} == {"zero", "empty"}
    for case in cases:
        rows = np.asarray(case.row_lengths) == 0
        values = values_at(arrays, case.network.name)
        h0, c0 = rec.initial_states(case, values)
        _, h, _ = compute(case.network, values.blob, (values.x, h0, c0), case.row_lengths)
        np.testing.assert_array_equal(h[:, rows], h0[:, rows])
        assert h0[:, rows].all()
        assert not any(arrays[f"{case.name}/{key}"][:, rows].any() for key in "yhc")


@pytest.mark.parametrize("name", OUTPUTS)
def test_recorded_tf32_is_within_the_bound_of_recordings(name: str) -> None:
    """`verify --golden` allows a recording's device 2^-10 of an answer and of 1 where it used TF32."""
    meta, arrays = load(DATA / name)
    cases = [
        case for case in map(case_of, meta["cases"]) if (case.network.dtype, case.math) == ("float", "tensor")
    ]
    assert len(cases) == 4
    for case in cases:
        wanted = run_reference(case, values_at(arrays, case.network.name))
        for key, value in wanted._asdict().items():
            gap = np.abs(arrays[f"{case.name}/{key}"] - value)
            assert (gap <= effort.TF32 * (1 + np.abs(value))).all(), (case.name, key)
            assert value.size == 0 or gap.max() > 2e-5


def test_tf32_errs_by_fewer_roundings_than_are_allowed() -> None:
    """A recording's bound widens with what float32's rounding does to the model; larger networks show how."""
    cases = json.loads((DATA / "recording.json").read_text())["cases"]
    pairs = [
        (cases[case.name]["error"], cases[replace(case, math="fma").name]["error"])
        for case in rec.error_cases()
        if (case.network.dtype, case.math) == ("float", "tensor")
    ]
    assert len(pairs) == 17
    assert all(100 * single < tf32 <= effort.TF32_ROUNDINGS * single for tf32, single in pairs)
    # One rounding alone would refuse half of the deep ones.
    assert sum(tf32 > 2 * effort.TF32 for tf32, _ in pairs) >= 4


@pytest.mark.parametrize(
    ("name", "source"),
    [("offsets.npz", "device"), ("host_offsets.npz", "host code with a blank handle, no device")],
)
def test_recorded_offsets_are_the_formula_s(name: str, source: str) -> None:
    assert load(DATA / name)[0]["about"]["source"] == source
    assert offset_disagreements(DATA / name) == []


def test_nothing_is_missing_in_the_recordings() -> None:
    assert missing(DATA) == []
    summary = json.loads((DATA / "recording.json").read_text())
    assert {entry["status"] for entry in summary["cases"].values()} == {"ok"}
    assert summary["cases"].keys() == {rec.OFFSETS_JOB, *rec.all_cases()}


# The replay itself, on files that a stand-in made in a temporary folder.


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, rec.Results]:
    """A complete set of files, whose outputs come from the reference and whose offsets from the formula."""
    folder, device = tmp_path_factory.mktemp("made"), StandInDevice()
    results = rec.Results(about={"source": "stand-in, no recording"})
    for case in rec.output_cases():
        results.outputs[case.name] = rec.run_cudnn(device, case, rec.values_of(case))  # type: ignore[arg-type]
        results.jobs[case.name] = {"job": case.name, "status": "ok"}
    for case in rec.gradient_cases():  # as many as a device gives, of nothing: another test computes some
        values = rec.values_of(case)
        results.gradients[case.name] = rec.Gradients(*(0 * value for value in values))
        results.jobs[case.name] = {"job": case.name, "status": "ok"}
    entries = {
        net.name: {
            "network": vars(net),
            "status": "ok",
            "bytes": rec.blob_size(net) * rec.ITEM_SIZE[net.dtype],
            "regions": rec.regions(net),
        }
        for net in rec.offset_networks()
    }
    results.jobs[rec.OFFSETS_JOB] = {"job": rec.OFFSETS_JOB, "status": "ok", "offsets": entries}
    rec.save_outputs(folder, results)
    rec.save_offsets(folder / "offsets.npz", results)
    rec.save_gradients(folder / "gradients.npz", results)
    return folder, results


def rewrite(path: Path, target: Path, changes: Mapping[str, rec.Array]) -> Path:
    """`path` with some arrays changed, as `target`."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    assert set(changes) <= set(arrays)
    np.savez(target, **{**arrays, **changes})
    return target


@pytest.mark.slow("scripts/record_cudnn.py", "tests/recorder/")
@pytest.mark.parametrize("name", with_a_witness(OUTPUTS, "outputs_gru.npz"))
def test_replay_accepts_what_the_reference_computes(made: tuple[Path, rec.Results], name: str) -> None:
    assert disagreements(made[0] / name) == []


@pytest.mark.slow("scripts/record_cudnn.py", "tests/recorder/")
def test_replay_accepts_the_formula_s_offsets(made: tuple[Path, rec.Results]) -> None:
    assert offset_disagreements(made[0] / "offsets.npz") == []


@pytest.mark.slow("cudnn_convert/reference")
def test_nothing_is_missing_in_a_complete_folder(made: tuple[Path, rec.Results]) -> None:
    assert missing(made[0]) == []


def test_an_empty_folder_misses_every_file(tmp_path: Path) -> None:
    assert missing(tmp_path) == list(FILES)


@RECORDER
def test_a_whole_run_writes_what_the_replay_reads(
    made: tuple[Path, rec.Results],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`record` from the results on: files, summary, printed answers."""
    monkeypatch.setattr(rec, "run_jobs", lambda jobs, **flags: made[1])
    assert rec.record(tmp_path, seconds=1) == 0
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "recording.json"}
    assert missing(tmp_path) == []
    summary = json.loads((tmp_path / "recording.json").read_text())
    assert summary["source"] == "stand-in, no recording"
    assert len(summary["cases"]) == len(rec.output_cases() + rec.gradient_cases()) + 1
    kept = sum(not case.network.skip_input for case in rec.output_cases())
    assert summary["answers"]["equations"].startswith(f"{kept} of {kept} within the noise floor, worst")
    printed = capsys.readouterr().out
    assert all(f"\nQ{n}: " in printed for n in range(1, 14))
    assert "Q1: 384 networks: equal" in printed


@RECORDER
def test_a_refused_case_is_missing_with_its_status(made: tuple[Path, rec.Results], tmp_path: Path) -> None:
    case = next(case for case in rec.output_cases() if case.lengths == "zero")
    results = made[1]
    jobs = {**results.jobs, case.name: {"job": case.name, "status": "refused"}}
    outputs = {name: found for name, found in results.outputs.items() if name != case.name}
    rec.save_outputs(tmp_path, rec.Results(results.about, jobs, outputs))
    assert missing(tmp_path) == ["offsets.npz", "gradients.npz", f"{case.name}: refused"]
    assert disagreements(tmp_path / f"outputs_{case.network.mode}.npz") == []


@pytest.mark.parametrize("mode", with_a_witness(rec.MODES, "gru"))
def test_replay_sees_two_swapped_gates_and_a_lost_bias(
    made: tuple[Path, rec.Results], tmp_path: Path, mode: str
) -> None:
    """Changes to one network's blob must fail exactly that network's cases."""
    net = rec.Network(mode, 2, 2)
    path, key = made[0] / f"outputs_{mode}.npz", f"{net.name}/blob"
    blob = load(path)[1][key]
    table = rec.regions(net)
    first, second = table[0], table[1]
    area = first.rows * first.columns
    swapped, unbiased = blob.copy(), blob.copy()
    # With one gate the neighbour of W is R; both are cut from the same memory all the same.
    swapped[first.matrix_offset :][:area] = blob[second.matrix_offset :][:area]
    swapped[second.matrix_offset :][:area] = blob[first.matrix_offset :][:area]
    unbiased[table[-1].bias_offset :] = 0
    cases = {name for name in made[1].outputs if name.startswith(net.name) and "-empty-" not in name}
    for changed in (swapped, unbiased):
        found = disagreements(rewrite(path, tmp_path / "changed.npz", {key: changed}))
        assert {line.split(":")[0] for line in found} == cases


def test_replay_sees_poison_past_the_lengths(made: tuple[Path, rec.Results], tmp_path: Path) -> None:
    case = next(case for case in rec.output_cases() if case.lengths == "short")
    path, key = made[0] / f"outputs_{case.network.mode}.npz", f"{case.name}/y"
    y = load(path)[1][key]
    y[-1, 0, 0] = np.nan
    (line,) = disagreements(rewrite(path, tmp_path / "poisoned.npz", {key: y}))
    assert line.startswith(f"{case.name}: off by inf, rounding explains")


def test_replay_sees_one_moved_region(made: tuple[Path, rec.Results], tmp_path: Path) -> None:
    net = rec.Network("gru", 2, 3)
    moved = load(made[0] / "offsets.npz")[1][net.name]
    moved[4, 2] += 1
    (line,) = offset_disagreements(
        rewrite(made[0] / "offsets.npz", tmp_path / "moved.npz", {net.name: moved})
    )
    assert line.startswith(f"{net.name}: 1 regions differ, first (0, 4,")


@pytest.mark.slow("scripts/record_cudnn.py", "tests/recorder/")
@pytest.mark.parametrize("mode", with_a_witness(rec.MODES, "gru"))
def test_replay_sees_a_gradient_that_is_a_little_off(tmp_path: Path, mode: str) -> None:
    """The stand-in's gradients are differences; then each of a device that is 0.1 % off."""
    case = next(
        case
        for case in rec.gradient_cases()
        if case.network == rec.Network(mode) and case.lengths == "ragged" and not case.batch_major
    )
    for slope in (1.0, 1.001):
        device: Any = StandInDevice(slope=slope)
        result = rec.run_case(device, case, tmp_path / "0.npz")
        rec.write_json(tmp_path / "0.json", result)
        results = rec.Results(about={"source": "stand-in, no recording"})
        rec.collect([case.name], tmp_path, results)
        rec.save_gradients(tmp_path / "gradients.npz", results)
        seen = {line.split(" is off")[0] for line in gradient_disagreements(tmp_path / "gradients.npz")}
        inputs = ("blob", "x", "h0", "c0") if mode == "lstm" else ("blob", "x", "h0")
        assert seen == ({f"{case.name}: d{key}" for key in inputs} if slope != 1 else set())
