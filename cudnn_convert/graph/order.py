"""In which order a variable is read and assigned, as far as a graph says."""

from __future__ import annotations

from typing import Final

from cudnn_convert.graph.index import Index, tensor
from cudnn_convert.graph.state import SWITCHES, State, Use

_CURE: Final = "the format savedmodel keeps it as it is"
_IDENTITIES: Final = frozenset({"RefIdentity", "Identity"})


class Order:
    """The assignments of one variable in stages, and the place of each use among them.

    `reasons` are what is not certain, found so far.
    """

    def __init__(self, index: Index, state: State) -> None:
        self.index, self.nodes, self.state = index, index.nodes, state
        self.reasons: list[str] = []
        ops = [write.op for write in state.writes]
        self.before = {op: index.ancestors([op]) for op in ops}
        self.after = {op: _waiting(index, op) for op in ops}
        self.stages = self._stages()

    def refuse(self, what: str) -> None:
        """Notes a reason."""
        self.reasons.append(f"variable {self.state.variable}: expected {what}")

    def _stages(self) -> list[list[Use]]:
        """The assignments in their order; those of the two sides of one branch share a stage."""
        stages: list[list[Use]] = []
        ops = set(self.before)
        for write in sorted(self.state.writes, key=lambda write: len(self.before[write.op] & ops)):
            others = stages[-1] if stages else []
            if any(op not in SWITCHES | _IDENTITIES for op in self._ops(write)):
                self.refuse(f"no assignment inside a loop, found {write.op}; {_CURE}")
            if len(self.branches(write)) > 1:
                self.refuse(f"no assignment inside two branches, found {write.op}; {_CURE}")
            if others and all(self._excludes(other, write) for other in others):
                stages[-1].append(write)
                continue
            unordered = [w.op for stage in stages for w in stage if w.op not in self.before[write.op]]
            if unordered:
                found = f"{unordered[0]} and {write.op}"
                self.refuse(f"assignments in a certain order, found {found} in none; choose other --outputs")
            stages.append([write])
        return stages

    def _ops(self, use: Use) -> list[str]:
        return [self.nodes[name].op for name, _ in use.passage]

    def branches(self, use: Use) -> list[tuple[str, int]]:
        """The branches that a use stands in: predicate and side, outermost first."""
        return [
            (tensor(self.nodes[name].input[1]), side)
            for name, side in use.passage
            if self.nodes[name].op in SWITCHES
        ]

    def _excludes(self, one: Use, other: Use) -> bool:
        """Whether two uses stand on the two sides of one branch."""
        sides = dict(self.branches(one))
        return any(sides.get(predicate, side) != side for predicate, side in self.branches(other))

    def place(self, use: Use) -> tuple[int, Use | None]:
        """How many stages come before a use, and the assignment before it in its own branch, if any."""
        number, inside = 0, None
        for stage in self.stages:
            earlier = [write for write in stage if use.op in self.after[write.op] and use.op != write.op]
            if use in stage or (not earlier and self._is_before(use, stage)):
                break
            if not earlier:
                ops = " or ".join(write.op for write in stage)
                self.refuse(f"reads before or after {ops}, found {use.op} in no certain order; {_CURE}")
                break
            number += 1
            inside = next((write for write in earlier if self._within(write, use)), None)
        return number, inside

    def _within(self, write: Use, use: Use) -> bool:
        branches = self.branches(write)
        return bool(branches) and self.branches(use)[: len(branches)] == branches

    def _is_before(self, use: Use, stage: list[Use]) -> bool:
        """Whether nothing of a stage can change what a use reads."""
        if any(use.op in self.before[write.op] for write in stage):
            return True
        return all(self._excludes(write, use) or self._is_unused(use, write) for write in stage)

    def _is_unused(self, use: Use, write: Use) -> bool:
        """Whether a value read outside of branches goes only to the side where `write` is not."""
        sides = dict(self.branches(write))
        readers = [*self.index.consumers(use.op)]
        for node in readers:
            if node.op not in SWITCHES or tensor(node.input[1]) not in sides:
                return False
            if any(True for _ in self.index.consumers(node.name, sides[tensor(node.input[1])])):
                return False
        return bool(readers) and bool(sides)


def _waiting(index: Index, op: str) -> set[str]:
    """Everything that runs after an op."""
    seen: set[str] = set()
    todo = [op]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [node.name for node in index.readers(name)]
    return seen - {op}
