"""What the statements say together: equal, different, or of some recurrence nothing at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudnn_convert.report import GlueReport, OutputReport, PieceReport


@dataclass(frozen=True, slots=True)
class Verdict:
    """`passed`: nothing differed. The other fields as in `Verification`."""

    passed: bool
    end_to_end: str
    unproven: tuple[str, ...]
    warnings: tuple[str, ...]


def proven_alone(asked: Sequence[PieceReport]) -> list[str]:
    """The recurrences of which every layer was asked by itself."""
    lost = {one.node for one in asked if not one.asked}
    return list(dict.fromkeys(one.node for one in asked if one.node not in lost))


def of(
    outputs: Sequence[OutputReport],
    asked: Sequence[PieceReport],
    moving: Mapping[str, frozenset[str]],
    *,
    still: bool,
    glue: GlueReport | None = None,
) -> Verdict:
    """The verdict on outputs, and on recurrences that were asked by themselves.

    `moving`: of every other recurrence the outputs that move with it, which prove it if they are judged.
    `still`: no output moves even with all recurrences. `glue`: what stands around them, where the outputs
    cannot show it.
    """
    differ = not all(one.passed for one in outputs)
    unjudged = [one.output for one in outputs if not one.judged]
    sharp = {one.output for one in outputs} - {*unjudged}
    alone = proven_alone(asked)
    unproven = [node for node, keys in moving.items() if node not in alone and not keys & sharp]
    # Of others nothing says which outputs move with them: one that is judged has to do.
    others = dict.fromkeys(one.node for one in asked if not one.asked and one.node not in moving)
    unproven += [] if sharp else others
    warnings = []
    if still and alone:
        warnings.append(
            f"the outputs on these inputs do not depend on {', '.join(alone)}, asked by itself alone; give "
            "inputs on which they do with --data"
        )
    if unjudged and alone:
        warnings.append(
            f"recurrences are equal by themselves; end to end not judged: {', '.join(unjudged)}; "
            "give milder inputs with --data"
        )
    if glue is not None and not glue.asked and alone:
        warnings.append(f"what stands around the recurrences was not run by itself: {glue.message}")
    if glue is not None and glue.asked and glue.passed and glue.message:
        warnings.append(f"around the recurrences {glue.message}")
    if glue is not None and glue.unjudged:
        warnings.append(f"around the recurrences noise hides {', '.join(glue.unjudged)}")
    return Verdict(
        not differ and all(one.passed for one in asked) and (glue is None or glue.passed),
        "different" if differ else "not judged" if unjudged else "equal",
        tuple(unproven),
        tuple(warnings),
    )
