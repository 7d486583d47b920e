"""The recorder's run, with a stand-in for the device: calls, answers, failures, files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_cudnn as rec
from standin import WITNESS, StandInCudnn, StandInDevice

pytestmark = pytest.mark.slow("scripts/record_cudnn.py", "tests/recorder/")

BY_NAME = {case.name: case for case in rec.output_cases()}


def one_per_kind() -> list[rec.Case]:
    """A case of every combination that the call distinguishes, at the deepest network that has it."""
    kinds = {}
    for case in rec.output_cases():
        net = case.network
        network = (net.mode, net.dtype, net.skip_input, bool(net.projection))
        kinds[network, case.lengths, case.batch_major, case.random_initial, case.training] = case
    return list(kinds.values())


@pytest.mark.parametrize("case", one_per_kind(), ids=lambda case: case.name)
def test_the_call_hands_over_what_the_case_means(case: rec.Case) -> None:
    """The stand-in reads arguments by name and memory by address; its results must be the equations'."""
    values = rec.values_of(case)
    found = rec.run_cudnn(StandInDevice(), case, values)
    assert found.y.dtype == rec.NUMPY_TYPE[case.network.dtype]
    # The stand-in computes in float64 and rounds once, to the dtype that arrays are kept in.
    bound = {"half": 2.0**-10, "double": 1e-12}.get(case.network.dtype, 2.0**-22)
    assert rec.error_of(found, rec.expected(case, values)) < bound


@pytest.mark.parametrize("case", one_per_kind(), ids=lambda case: case.name)
def test_the_witness_sees_the_same_blob_and_rows(case: rec.Case) -> None:
    """Packing, sorting and their undoing: PyTorch's path must give what the direct call gives."""
    device, values = StandInDevice(), rec.values_of(case)
    found = rec.run_witness(device, case, values)
    if case.network.skip_input or 0 in case.row_lengths:
        assert found is None
    else:
        assert found is not None
        assert rec.error_of(found, rec.run_cudnn(device, case, values)) == 0


@pytest.mark.every
def test_the_witness_is_called_as_pytorch_declares() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; its declaration cannot be read")
    schema = torch.ops.aten._cudnn_rnn.default._schema
    assert [argument.name for argument in schema.arguments] == WITNESS


@pytest.mark.every
def test_torch_memory_is_handed_over_and_fetched() -> None:
    """The real `Device`, on the CPU, around the stand-in for cuDNN."""
    pytest.importorskip("torch", reason="PyTorch is not installed; the stand-in's own memory is used above")
    device = rec.Device("cpu", StandInCudnn())
    assert device.healthy()
    for case in one_per_kind():
        if case.network.dtype != "bfloat16":  # the stand-in has none
            values = rec.values_of(case)
            found, other = rec.run_cudnn(device, case, values), rec.run_cudnn(StandInDevice(), case, values)
            assert rec.error_of(found, other) == 0, case.name
    exact = rec.rounded(np.linspace(-1, 1, 77), "bfloat16")
    np.testing.assert_array_equal(device.get(device.put(exact, "bfloat16"), "bfloat16"), exact)
    assert np.isnan(device.get(device.poisoned((2, 3), "bfloat16"), "bfloat16")).all()
    assert device.space(0).tolist() == [255]


def recorded(names: list[str], **behaviour: Any) -> rec.Results:
    """What a run gives whose device behaves so."""
    device, results = StandInDevice(**behaviour), rec.Results(about={"source": "stand-in, no recording"})
    for name in names:
        case = BY_NAME[name]
        try:
            results.outputs[name] = rec.run_cudnn(device, case, rec.values_of(case))  # type: ignore[arg-type]
            results.jobs[name] = {"job": name, "status": "ok"}
        except rec.CudnnError as error:
            results.jobs[name] = {"job": name, "status": str(error)}
    return results


def names_where(**wanted: Any) -> list[str]:
    return [name for name, case in BY_NAME.items() if all(getattr(case, k) == v for k, v in wanted.items())]


def test_answer_padding_tells_zero_poison_and_other_apart() -> None:
    names = [
        name
        for name in names_where(lengths="short", random_initial=True, batch_major=True)
        if not BY_NAME[name].training
    ]
    zeros, poison = recorded(names), recorded(names, padding="poison")
    stem = "cases whose outputs past the lengths are "
    assert rec.answer_padding(zeros) == stem + "{'zero': 24, 'poison left': 0, 'other': 0}"
    assert rec.answer_padding(poison) == stem + "{'zero': 0, 'poison left': 24, 'other': 0}"
    zeros.outputs[names[0]].y[-1, 0, 0] = 1e-30
    zeros.outputs[names[1]].y[-1, 0, 0] = np.nan
    assert rec.answer_padding(zeros) == stem + "{'zero': 22, 'poison left': 1, 'other': 1}"


@pytest.mark.parametrize(
    ("states", "fits"),
    [
        ("layer-major", "[layers*directions, batch, width]"),
        ("batch-major", "[batch, layers*directions, width]"),
    ],
)
def test_answer_state_order_tells_the_two_readings_apart(states: str, fits: str) -> None:
    names = names_where(batch_major=True, random_initial=True, lengths="full")
    answer = rec.answer_state_order(recorded(names, states=states))
    # 24 networks, less the 4 of one layer and direction, where both readings are the same memory.
    assert f"'{fits}': 20" in answer and answer.count(": 0") == 2


def test_answer_skip() -> None:
    names = [n for n in names_where(lengths="ragged") if BY_NAME[n].network.skip_input]
    assert rec.answer_skip(recorded(names)) == (
        "{'identity with both biases': 16, 'identity without the input bias': 0, 'neither': 0}; refused: none"
    )


def test_answer_zero_length() -> None:
    names, unheard = names_where(lengths="zero"), "8 cases, zero: not run; "  # those with gradients
    runs = rec.answer_zero_length(recorded(names + names_where(lengths="empty")))
    final = "runs; outputs zeros, final state zero"
    assert runs == f"{unheard}16 cases, zero: {final}; 8 cases, empty: {final}"
    keeps = rec.answer_zero_length(recorded(names, zero_length="kept"))
    assert keeps.startswith(f"{unheard}16 cases, zero: runs; outputs zeros, final state initial; ")
    refused = rec.answer_zero_length(recorded(names, zero_length="refused"))
    assert refused.startswith(f"{unheard}16 cases, zero: cudnnRNNForward: CUDNN_STATUS_BAD_PARAM; ")


def test_answer_dirty_sees_one_bit() -> None:
    names = [name for name in names_where(dirty=True) if "-time-major-" in name]
    results = recorded(names + [name.removesuffix("-dirty") for name in names])
    assert rec.answer_dirty(results) == "8 pairs equal bit for bit, 0 not: []"
    y = results.outputs[names[0]].y
    y[0, 0, 0] = np.nextafter(y[0, 0, 0], np.float32(9))
    assert rec.answer_dirty(results) == f"7 pairs equal bit for bit, 1 not: {names[:1]}"


def test_answer_gradients_names_the_worst() -> None:
    case = next(case for case in rec.gradient_cases() if case.network == rec.Network("rnn_relu"))
    device: Any = StandInDevice(slope=1.5)
    results = rec.Results(gradients={case.name: rec.run_gradients(device, case, rec.values_of(case))})
    answer = rec.answer_gradients(results)
    assert answer.startswith("1 of 84 cases ran; ") and f"({case.name})" in answer
    assert float(answer.split("blob ")[1].split()[0]) > 1e-2


def test_calls_are_timed() -> None:
    case = rec.timed_cases()["gru", "u5", "fma"]
    device: Any = StandInDevice()
    times = rec.time_calls(device, case, rec.values_of(case))
    assert len(times) == rec.CALLS and min(times) > 0
    took = {"median": 12.3, "p5": 11.7, "p95": 13.9}
    table = rec.time_table(rec.Results(jobs={case.name: {"microseconds": took}}))
    assert "| gru | u5 | fma | 12 | 12 | 14 |" in table and "| gru | u5 | tensor | not run |" in table


def test_answer_training_sees_one_bit() -> None:
    names = names_where(training=True, batch_major=False, lengths="none")
    results = recorded(names + [n.replace("-training-", "-inference-") for n in names])
    assert rec.answer_training(results) == "8 pairs equal bit for bit, 0 not: []"
    y = results.outputs[names[0]].y
    y[0, 0, 0] = np.nextafter(y[0, 0, 0], np.float32(9))
    assert rec.answer_training(results) == f"7 pairs equal bit for bit, 1 not: {names[:1]}"


def test_answer_offsets_names_a_difference() -> None:
    net = rec.Network("gru", 2, 2)
    table = [list(region) for region in rec.regions(net)]
    entry = {"network": vars(net), "status": "ok", "bytes": 4 * rec.blob_size(net), "regions": table}
    assert rec.offset_verdict(entry) == "equal"
    table[3][2] += 1
    assert rec.offset_verdict(entry).startswith("1 regions differ, first (0, 3, 106, 5, 5,")
    assert rec.offset_verdict({**entry, "bytes": 4 * rec.blob_size(net) + 4}).endswith(
        f"bytes, formula {4 * rec.blob_size(net)}"
    )


def test_every_question_gets_an_answer() -> None:
    """Also when everything was refused."""
    results = rec.Results(jobs={name: {"job": name, "status": "refused"} for name in BY_NAME})
    found = rec.answers(results, rec.judged(results))
    assert [f"Q{n}" for n in range(1, 14)] == [question for question in found if question.startswith("Q")]
    assert "record_tensorflow" in found["Q9"] and "record_tensorflow" in found["Q11"]
    assert found["Q4"] == "no outputs"


def test_every_question_stands_in_the_documentation() -> None:
    page = Path(rec.__file__).resolve().parents[1] / "docs" / "cudnn-questions.md"
    asked = re.findall(r"^## (Q\d+)\. .+\n\n\*\*.+\?\*\*$", page.read_text(), flags=re.MULTILINE)
    assert asked == [f"Q{n}" for n in range(1, 14)]


def test_a_case_that_raises_is_recorded(tmp_path: Path) -> None:
    case = BY_NAME[names_where(lengths="zero")[0]]
    device: Any = StandInDevice(zero_length="refused")
    result = rec.run_case(device, case, tmp_path / "0.npz")
    assert result["status"] == "CudnnError: cudnnRNNForward: CUDNN_STATUS_BAD_PARAM"
    assert not (tmp_path / "0.npz").exists()


def test_a_witness_that_raises_does_not_cost_the_case(tmp_path: Path) -> None:
    device: Any = StandInDevice(witness=False)
    result = rec.run_case(device, BY_NAME[names_where(lengths="ragged")[0]], tmp_path / "0.npz")
    assert result["status"] == "ok" and (tmp_path / "0.npz").exists()
    assert result["witness"] == "RuntimeError: the stand-in has no PyTorch"


WORKER = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--worker") + 1])
jobs = json.loads((folder / "jobs.json").read_text())
(folder / "about.json").write_text('{"source": "test"}')
for number, job in enumerate(jobs):
    if job == "dies":
        os.kill(os.getpid(), 9)
    if job == "hangs":
        time.sleep(60)
    status = "broken" if job == "loses the context" else "ok"
    (folder / f"{number}.part").write_text(json.dumps({"job": job, "status": status}))
    (folder / f"{number}.part").replace(folder / f"{number}.json")
    if status != "ok":
        sys.exit(17)
"""


def test_workers_that_die_hang_or_lose_the_context_cost_one_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    monkeypatch.setattr(rec, "__file__", str(script))
    monkeypatch.setattr(rec, "LONGEST_CASE", 1.0)
    jobs = ["a", "dies", "b", "loses the context", "c", "hangs", "d"]
    results = rec.run_jobs(jobs, blank_handle=False, seconds=60)
    assert {job: result["status"] for job, result in results.jobs.items()} == {
        "a": "ok",
        "dies": "the process ended with code -9",
        "b": "ok",
        "loses the context": "broken",
        "c": "ok",
        "hangs": "the process hung for 1.0 s",
        "d": "ok",
    }


def test_time_that_runs_out_leaves_the_rest_as_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    monkeypatch.setattr(rec, "__file__", str(script))
    results = rec.run_jobs(["a", "hangs", "b"], blank_handle=False, seconds=1.5)
    assert [results.jobs[job]["status"] for job in ("a", "hangs", "b")] == ["ok", "not run", "not run"]


def test_without_a_device_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A worker that cannot start is no recording."""
    script = tmp_path / "worker.py"
    script.write_text("import sys; sys.exit(3)")
    monkeypatch.setattr(rec, "__file__", str(script))
    assert rec.record(tmp_path / "out", 30) == 1
    assert not (tmp_path / "out").exists()
    assert "no recording: no worker could start" in capfd.readouterr().err


def test_help_runs_without_pytorch() -> None:
    """In a process of its own, where no other test can have imported it."""
    code = "import sys; sys.modules['torch'] = None; import runpy; runpy.run_path(sys.argv.pop(1))"
    command = [sys.executable, "-c", code, rec.__file__, "--help"]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(SystemExit) as end:
        rec.main(["--help"])
    assert end.value.code == 0


def test_files_are_few_small_and_complete(tmp_path: Path) -> None:
    results = recorded(list(BY_NAME))
    rec.save_outputs(tmp_path, results)
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == [f"outputs_{mode}.npz" for mode in sorted(rec.MODES)]
    assert sum(f.stat().st_size for f in files) < rec.LARGEST_FILE
    for path in files:
        with np.load(path) as arrays:
            meta = json.loads(str(arrays["meta"]))
            for entry in meta["cases"]:
                assert {f"{entry['job']}/{key}" for key in "yhc"} <= set(arrays.files)
