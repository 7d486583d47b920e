"""What ONNX control flow hands on gets one order, whatever the source's, and stays what it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from cudnn_convert.lower.onnx.finish import canonical
from cudnn_convert.lower.onnx.walk import subgraphs

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
X, W = np.array([1, -2], np.float32), np.array([0.5, 3], np.float32)


def parsed(text: str) -> Any:
    return onnx.parser.parse_model(HEAD + text)


def bytes_of(model: Any) -> bytes:
    return bytes(canonical(model).SerializeToString(deterministic=True))


def answers(model: bytes, **feeds: Any) -> list[Any]:
    """What ONNX Runtime gives, outputs in order."""
    run = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(run.run(None, {name: np.array(value) for name, value in feeds.items()}))


def only(models: Sequence[Any]) -> bytes:
    """The bytes that all of them come to."""
    (found,) = {bytes_of(model) for model in models}
    return found


def choice(results: Mapping[str, str], order: Sequence[str], extra: str = "", constants: str = "") -> str:
    """A graph whose If hands on `results`, name -> expression, in `order`: y is all of them, side by side.

    The second branch has each of them negated.
    """
    lines = "\n".join(f"{name} = {expression}" for name, expression in results.items())
    turned = "\n".join(f"not_{name} = Neg ({name})" for name in results)
    return f"""
main (bool which, float[2] x, float[2] w) => (float[n] y) <{constants}> {{
    {", ".join(f"out_{name}" for name in order)} = If <
        then_branch = yes () => ({", ".join(f"float[2] {name}" for name in order)}) {{ {extra} {lines} }},
        else_branch = no () => ({", ".join(f"float[2] not_{name}" for name in order)})
        {{ {extra} {lines} {turned} }}> (which)
    y = Concat <axis = 0> ({", ".join(f"out_{name}" for name in results)})
}}"""


#: By what alone they differ: expressions of x and w, and their values.
DIFFERENT: dict[str, tuple[str, str, dict[str, tuple[str, Any]]]] = {
    "op": ("", "", {"a": ("Add (x, w)", X + W), "b": ("Mul (x, w)", X * W), "c": ("Sub (x, w)", X - W)}),
    "order": ("", "", {"a": ("Sub (x, w)", X - W), "b": ("Sub (w, x)", W - X), "c": ("Sub (w, w)", 0 * W)}),
    "constant": (
        "",
        "float one = {1.0}, float two = {2.0}, float three = {3.0}",
        {"a": ("Add (x, one)", X + 1), "b": ("Add (x, two)", X + 2), "c": ("Add (x, three)", X + 3)},
    ),
    "attribute": (
        "",
        "",
        {
            "a": ("LeakyRelu <alpha = 0.5> (x)", np.where(X < 0, X / 2, X)),
            "b": ("LeakyRelu <alpha = 0.25> (x)", np.where(X < 0, X / 4, X)),
            "c": ("Elu <alpha = 0.25> (x)", np.where(X < 0, np.expm1(X) / 4, X)),
        },
    ),
    "name of an attribute": (
        "",
        "",
        {
            "a": ("HardSigmoid <alpha = 0.25> (x)", np.clip(X / 4 + 0.5, 0, 1)),
            "b": ("HardSigmoid <beta = 0.25> (x)", np.clip(X / 5 + 0.25, 0, 1)),
            "c": ("HardSigmoid (x)", np.clip(X / 5 + 0.5, 0, 1)),
        },
    ),
    "output": (
        "h, i, j = Split <axis = 0> (stacked, parts) stacked = Concat <axis = 0> (x, w, x)",
        "int64[3] parts = {1, 3, 2}",
        {"a": ("Add (h, w)", X[0] + W), "b": ("Add (j, w)", X + W), "c": ("Sub (j, w)", X - W)},
    ),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_values_that_differ_in_one_thing_are_kept_apart_in_any_order(kind: str) -> None:
    extra, constants, given = DIFFERENT[kind]
    results = {name: expression for name, (expression, _) in given.items()}
    model = only([parsed(choice(results, order, extra, constants)) for order in permutations(results)])
    expected = np.concatenate([found for _, found in given.values()]).astype(np.float32)
    for which, sign in ((True, 1), (False, -1)):
        (y,) = answers(model, which=which, x=X, w=W)
        np.testing.assert_allclose(y, sign * expected, rtol=1e-6)


FIVE = {f"part_{k}": f"Add (x, {name})" for k, name in enumerate(("one", "two", "three", "four", "w"))}
CONSTANTS = "float one = {1.0}, float two = {2.0}, float three = {3.0}, float four = {4.0}"


def test_names_and_doc_strings_of_constants_do_not_matter() -> None:
    models = [parsed(choice(FIVE, [*FIVE], constants=CONSTANTS))]
    for turn in (0, 3):
        text = choice(FIVE, [*FIVE], constants=CONSTANTS)
        for name in ("one", "two", "three", "four"):
            text = text.replace(f"{name})", f"{name}{turn})").replace(f"{name} =", f"{name}{turn} =")
        models.append(parsed(text))
        for k, tensor in enumerate(models[-1].graph.initializer):
            tensor.doc_string = f"constant {k * turn}"
    assert only(models)


def test_names_given_by_an_identity_do_not_matter() -> None:
    named = {name: expression.replace("x", "same") for name, expression in FIVE.items()}
    plain = parsed(choice(FIVE, [*FIVE], constants=CONSTANTS))
    assert only([plain, parsed(choice(named, [*FIVE], "same = Identity (x)", CONSTANTS))])


def test_a_branch_may_hand_on_what_is_not_its_own() -> None:
    """As an optimizer leaves it that takes an Identity away."""
    model = parsed(choice({"a": "Identity (x)", "b": "Neg (x)"}, ["b", "a"]))
    for nested in subgraphs(model.graph.node[0]):
        for node in list(nested.node):
            if node.output[0] in {"a", "not_a"}:
                nested.node.remove(node)
        for value in nested.output:
            value.name = "outside" if value.name in {"a", "not_a"} else value.name
    model.graph.node.append(onnx.helper.make_node("Mul", ["x", "w"], ["outside"]))
    for which, sign in ((True, -1), (False, 1)):
        (y,) = answers(bytes_of(model), which=which, x=X, w=W)
        np.testing.assert_array_equal(y, [*(X * W), *(sign * X)])


def loop(
    carried: Mapping[str, tuple[str, str]],
    stacked: Mapping[str, str],
    order: Sequence[str],
    stacks: Sequence[str] = (),
    extra: str = "",
) -> str:
    """A loop of `rounds`: `carried` are start and next value by name, `stacked` what a step gives by name.

    y is what the carried ones end with, z what the stacked ones gave, side by side.
    """
    lines = [f"next_{name} = {expression}" for name, (_, expression) in carried.items()]
    lines += [f"at_{name} = {expression}" for name, expression in stacked.items()]
    outputs = [f"last_{name}" for name in order] + [f"all_{name}" for name in stacks]
    results = [f"float next_{name}" for name in order] + [f"float at_{name}" for name in stacks]
    z = f"z = Concat <axis = 0> ({', '.join(f'all_{name}' for name in stacked)})" if stacked else ""
    return f"""
main (int64 rounds, float s, float t) => (float[n] y{", float[m] z" if stacked else ""})
<bool yes = {{1}}, float one = {{1.0}}, float two = {{2.0}}, int64[1] axes = {{0}}>
{{
    {", ".join(outputs)} = Loop <body = step (int64 k, bool go{"".join(f", float {name}" for name in order)})
        => (bool still, {", ".join(results)})
        {{ still = Identity (go) {extra} {" ".join(lines)} }}> (
            rounds, yes, {", ".join(carried[name][0] for name in order)})
    {" ".join(f"row_{name} = Unsqueeze (last_{name}, axes)" for name in carried)}
    y = Concat <axis = 0> ({", ".join(f"row_{name}" for name in carried)})
    {z}
}}"""


def test_the_order_of_what_a_loop_hands_on_does_not_matter() -> None:
    carried = {
        "a": ("s", "Add (a, one)"),
        "b": ("s", "Add (b, two)"),
        "c": ("t", "Add (c, one)"),
        "d": ("t", "Mul (d, a)"),
    }
    stacked = {"u": "Sub (d, a)", "v": "Add (d, a)", "i": "Cast <to = 1> (k)"}
    models = [loop(carried, stacked, order, [*stacked]) for order in permutations(carried)]
    models += [loop(carried, stacked, [*carried], order) for order in permutations(stacked)]
    y, z = answers(only([parsed(text) for text in models]), rounds=3, s=np.float32(2), t=np.float32(5))
    a, b, c, d = 2.0, 2.0, 5.0, 5.0
    rows = []
    for k in range(3):
        rows.append((d - a, d + a, k))
        a, b, c, d = a + 1, b + 2, c + 1, d * a
    np.testing.assert_array_equal(y, [a, b, c, d])
    np.testing.assert_array_equal(z, np.array(rows).T.reshape(-1))


def test_what_only_starts_alike_is_not_taken_for_one() -> None:
    """What stood in a state before is told apart by that state, and what stood in that by both."""
    carried = {
        "a": ("s", "Add (a, one)"),
        "b": ("s", "Add (b, two)"),
        "a_old": ("s", "Identity (a)"),
        "b_old": ("s", "Identity (b)"),
        "a_older": ("s", "Identity (a_old)"),
        "b_older": ("s", "Identity (b_old)"),
    }
    orders = [*permutations(carried)][::41]
    (y,) = answers(
        only([parsed(loop(carried, {}, order)) for order in orders]),
        rounds=5, s=np.float32(0), t=np.float32(0),
    )  # fmt: skip
    np.testing.assert_array_equal(y, [5, 10, 4, 8, 3, 6])


def test_a_branch_in_a_loop_hands_on_two_states_that_start_alike() -> None:
    carried = {"a": ("s", "Add (more_a, one)"), "b": ("s", "Sub (more_b, two)")}
    texts = []
    for names in permutations("ab"):
        branches = f"""{", ".join(f"more_{name}" for name in names)} = If <
            then_branch = first () => ({", ".join(f"float {name}_1" for name in names)})
            {{ a_1 = Mul (a, two) b_1 = Mul (b, two) }},
            else_branch = second () => ({", ".join(f"float {name}_2" for name in names)})
            {{ a_2 = Neg (a) b_2 = Neg (b) }}> (go)"""
        texts += [loop(carried, {}, order, extra=branches) for order in permutations(carried)]
    model = only([parsed(text) for text in texts])
    (y,) = answers(model, rounds=3, s=np.float32(0), t=np.float32(0))
    np.testing.assert_array_equal(y, [7, -14])


@pytest.mark.parametrize("in_a_branch", [False, True])
@pytest.mark.parametrize("names", [("p", "q"), ("q", "p")])
def test_the_numbers_of_two_loops_one_in_the_other_are_kept_apart(
    names: tuple[str, str], in_a_branch: bool
) -> None:
    """Both count from 0: what the inner body makes of the outer's number is another value than of its own."""
    inner = f"""
    {", ".join(f"sum_{name}" for name in names)} = Loop <body = deep (
        int64 j, bool on, {", ".join(f"float part_{name}" for name in names)}
    ) => (bool also, {", ".join(f"float more_{name}" for name in names)}) {{
        also = Identity (on)
        inner = Cast <to = 1> (j)
        more_p = Mul (part_p, outer)
        more_q = Mul (part_q, inner)
    }}> (rounds, yes, a, a)"""
    if in_a_branch:
        handed = ", ".join(f"float sum_{name}" for name in names)
        inner = f"""
        {", ".join(f"sum_{name}" for name in names)} = If <
            then_branch = first () => ({handed}) {{ {inner} }},
            else_branch = second () => ({handed}) {{ sum_p = Neg (a) sum_q = Neg (a) }}> (go)"""
    carried = {"a": ("s", "Add (a, one)"), "p": ("t", "Add (p, sum_p)"), "q": ("t", "Add (q, sum_q)")}
    model = bytes_of(parsed(loop(carried, {}, [*carried], extra=f"outer = Cast <to = 1> (k) {inner}")))
    (y,) = answers(model, rounds=3, s=np.float32(0), t=np.float32(1))
    p = q = 1
    for k in range(3):
        p, q = p + k * k**3, q + k * 0
    np.testing.assert_array_equal(y, [3, p, q])


def test_a_loop_may_carry_nothing() -> None:
    text = """
main (int64 rounds, float[2] x) => (float[n, 2] y, float[n, 2] z) <bool yes = {1}>
{
    ONE = Loop <body = step (int64 k, bool go) => (bool still, TWO)
        { still = Identity (go) at = Cast <to = 1> (k) p = Add (x, at) q = Mul (x, at) }> (rounds, yes)
}"""
    models = [
        parsed(text.replace("ONE", one).replace("TWO", two))
        for one, two in (("y, z", "float[2] p, float[2] q"), ("z, y", "float[2] q, float[2] p"))
    ]
    y, z = answers(only(models), rounds=2, x=X)
    np.testing.assert_array_equal(y, [X, X + 1])
    np.testing.assert_array_equal(z, [0 * X, X])


def test_loops_that_differ_in_a_step_alone_are_kept_apart() -> None:
    """They start alike, stack the same name, and end in what hangs on another variable."""

    def made(number: str, step: str) -> str:
        return f"""
        end_{number}, b_{number}, all_{number} = Loop <body = step_{number} (
                int64 k, bool go, float a, float b)
            => (bool still, float next_a, float next_b, float at)
            {{ still = Identity (go) next_a = Add (a, b) next_b = {step} at = Identity (b) }}>
            (rounds, yes, s, s)
        """

    inside = made("1", "Add (b, one)") + made("2", "Add (b, two)")
    text = f"""
main (bool which, int64 rounds, float s) => (float[n] y, float[m] z)
<bool yes = {{1}}, float one = {{1.0}}, float two = {{2.0}}, int64[1] axes = {{0}}>
{{
    {inside}
    one_a, one_all, two_a, two_all = If <
        then_branch = first () => (float p, float[n] p_all, float q, float[n] q_all)
        {{ p = Neg (end_1) p_all = Neg (all_1) q = Neg (end_2) q_all = Neg (all_2) }},
        else_branch = second () => (float p, float[n] p_all, float q, float[n] q_all)
        {{ p = Abs (end_1) p_all = Abs (all_1) q = Abs (end_2) q_all = Abs (all_2) }}> (which)
    row_1 = Unsqueeze (one_a, axes)
    row_2 = Unsqueeze (two_a, axes)
    y = Concat <axis = 0> (row_1, row_2)
    z = Concat <axis = 0> (one_all, two_all)
}}"""
    y, z = answers(bytes_of(parsed(text)), which=True, rounds=3, s=np.float32(0))
    np.testing.assert_array_equal(y, [-3, -6])
    np.testing.assert_array_equal(z, [0, -1, -2, 0, -2, -4])


def scan(
    carried: Mapping[str, tuple[str, str]],
    stacked: Mapping[str, str],
    order: Sequence[str],
    stacks: Sequence[str],
    *,
    reads: Sequence[str],
    extra: str = "",
) -> str:
    """As `loop`, over the rows of u, v and w, each by its name and `_t` in the body; some read twice."""
    lines = [f"next_{name} = {expression}" for name, (_, expression) in carried.items()]
    lines += [f"at_{name} = {expression}" for name, expression in stacked.items()]
    outputs = [f"last_{name}" for name in order] + [f"all_{name}" for name in stacks]
    inputs = [f"float {name}" for name in order] + [f"float {name}_t" for name in reads]
    results = [f"float next_{name}" for name in order] + [f"float at_{name}" for name in stacks]
    return f"""
main (float s, float t, float[rounds] u, float[rounds] v, float[rounds] w) => (float[n] y, float[m] z)
<float one = {{1.0}}, float two = {{2.0}}, int64[1] axes = {{0}}>
{{
    {", ".join(outputs)} = Scan <num_scan_inputs = {len(reads)}, body = step ({", ".join(inputs)})
        => ({", ".join(results)}) {{ {extra} {" ".join(lines)} }}>
        ({", ".join([carried[name][0] for name in order] + [*reads])})
    {" ".join(f"row_{name} = Unsqueeze (last_{name}, axes)" for name in carried)}
    y = Concat <axis = 0> ({", ".join(f"row_{name}" for name in carried)})
    z = Concat <axis = 0> ({", ".join(f"all_{name}" for name in stacked)})
}}"""


STEPS = {"s": np.float32(0), "t": np.float32(1), "u": X, "v": W, "w": np.array([4, 0.25], np.float32)}


def test_the_order_of_what_a_scan_hands_on_does_not_matter() -> None:
    carried = {
        "a": ("s", "Add (a, u_t)"),
        "b": ("s", "Sub (b, v_t)"),
        "a_old": ("s", "Identity (a)"),
        "b_old": ("s", "Identity (b)"),
        "c": ("t", "Mul (c, w_t)"),
    }
    stacked = {"d": "Sub (u_t, v_t)", "e": "Sub (v_t, u_t)", "f": "Mul (a, w_t)", "g": "Mul (b, w_t)"}
    names, stacks, reads = [*carried], [*stacked], ["u", "v", "w"]
    texts = [scan(carried, stacked, order, stacks, reads=reads) for order in permutations(names)]
    texts += [scan(carried, stacked, names, order, reads=reads) for order in permutations(stacks)]
    texts += [scan(carried, stacked, names, stacks, reads=order) for order in permutations(reads)]
    y, z = answers(only([parsed(text) for text in texts]), **STEPS)
    w = STEPS["w"]
    np.testing.assert_array_equal(y, [X.sum(), -W.sum(), X[0], -W[0], w.prod()])
    np.testing.assert_array_equal(z, np.concatenate([X - W, W - X, [0, X[0] * w[1]], [0, -W[0] * w[1]]]))


@pytest.mark.parametrize("inner", ["a", "same"])
def test_which_of_two_equal_states_a_scan_reads_does_not_matter(inner: str) -> None:
    carried = {"a": ("s", "Add (a, u_t)"), "same": ("s", "Add (same, u_t)"), "c": ("t", "Add (c, READ)")}
    text = scan(carried, {"d": "Neg (READ)"}, [*carried], ["d"], reads=["u"])
    model = only([parsed(text.replace("READ", name)) for name in ("a", inner)])
    y, z = answers(model, **STEPS)
    np.testing.assert_array_equal(y, [X.sum(), X.sum(), 1 + X[0]])
    np.testing.assert_array_equal(z, [0, -X[0]])


@pytest.mark.parametrize("names", [("p", "q"), ("q", "p")])
def test_the_steps_of_two_scans_of_one_tensor_are_kept_apart(names: tuple[str, str]) -> None:
    inner = f"""
    {", ".join(f"sum_{name}" for name in names)} = Scan <num_scan_inputs = 1, body = deep (
        {", ".join(f"float part_{name}" for name in names)}, float inner
    ) => ({", ".join(f"float more_{name}" for name in names)}) {{
        more_p = Add (part_p, u_t)
        more_q = Add (part_q, inner)
    }}> (s, s, u)"""
    carried = {"p": ("t", "Add (p, sum_p)"), "q": ("t", "Add (q, sum_q)")}
    text = scan(carried, {"d": "Neg (u_t)"}, [*carried], ["d"], reads=["u"], extra=inner)
    y, _ = answers(bytes_of(parsed(text)), **STEPS)
    np.testing.assert_array_equal(y, [1 + 2 * X.sum(), 1 + 2 * X.sum()])
    y, _ = answers(bytes_of(parsed(text.replace("Add (p, sum_p)", "Mul (p, sum_p)"))), **STEPS)
    np.testing.assert_array_equal(y, [4 * X.prod(), 1 + 2 * X.sum()])


def test_graphs_of_a_list_are_walked_too() -> None:
    graphs = [onnx.helper.make_graph([], name, [], []) for name in ("first", "second", "third")]
    attributes = [
        onnx.helper.make_attribute(name, found) for name, found in (("b", graphs[:2]), ("a", graphs[2]))
    ]
    node = onnx.helper.make_node("Any", [], [], domain="somewhere")
    node.attribute.extend([*attributes, onnx.helper.make_attribute("c", 1)])
    assert [found.name for found in subgraphs(node)] == ["third", "first", "second"]
