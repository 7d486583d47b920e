"""The names of TensorFlow's ops, in sets of common meaning.

A set that only one question asks stands beside that question.
Source: tensorflow v2.21.0 core/ops (`*_ops.cc`), python/ops for what older versions wrote.
"""

from pathlib import Path
from typing import Final

#: core/ops/cudnn_rnn_ops.cc.
CUDNN: Final = frozenset({"CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"})
CUDNN_GRADIENTS: Final = frozenset({"CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"})
CUDNN_PACKING: Final = frozenset({"CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2"})
#: core/ops/rnn_ops.cc: all steps, and one.
BLOCK_LSTMS: Final = frozenset({"BlockLSTM", "BlockLSTMV2"})
BLOCK_CELLS: Final = frozenset({"LSTMBlockCell", "GRUBlockCell"})
RECURRENCES: Final = CUDNN | BLOCK_LSTMS | BLOCK_CELLS

#: core/ops/state_ops.cc (by reference) and resource_variable_ops.cc (by handle).
REFERENCE_VARIABLES: Final = frozenset({"VariableV2", "Variable"})
VARIABLES: Final = REFERENCE_VARIABLES | {"VarHandleOp"}
OVERWRITES: Final = frozenset({"Assign", "AssignVariableOp"})
ADDITIONS: Final = frozenset({"AssignAdd", "AssignAddVariableOp"})
SUBTRACTIONS: Final = frozenset({"AssignSub", "AssignSubVariableOp"})
WRITES: Final = OVERWRITES | ADDITIONS | SUBTRACTIONS
#: core/ops/io_ops.cc.
RESTORES: Final = frozenset({"RestoreV2", "Restore", "RestoreSlice"})

#: core/ops/control_flow_ops.cc; by reference too.
SWITCHES: Final = frozenset({"Switch", "RefSwitch"})
MERGES: Final = frozenset({"Merge", "RefMerge"})
ENTERS: Final = frozenset({"Enter", "RefEnter"})
EXITS: Final = frozenset({"Exit", "RefExit"})
NEXT_ITERATIONS: Final = frozenset({"NextIteration", "RefNextIteration"})
#: What carries a tensor into branches and loops, within and out of them.
CARRIERS: Final = SWITCHES | MERGES | ENTERS | EXITS | NEXT_ITERATIONS | {"Identity"}
#: What carries a tensor into a branch or a loop.
PASSAGES: Final = SWITCHES | ENTERS
#: core/ops/functional_ops.cc: give the function in their attribute `f` their inputs, in order.
CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

#: What a program gives: placeholders, and components of iterators and queues (core/ops/dataset_ops.cc,
#: data_flow_ops.cc).
PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})
ALL_PLACEHOLDERS: Final = PLACEHOLDERS | {"PlaceholderWithDefault"}
STREAMS: Final = frozenset(
    "IteratorGetNext IteratorGetNextSync QueueDequeue QueueDequeueV2 QueueDequeueMany QueueDequeueManyV2 "
    "QueueDequeueUpTo QueueDequeueUpToV2 Unstage".split()
)

#: core/ops/lookup_ops.cc; tensorflow v1.15.0 python/ops/lookup_ops.py.
TABLES: Final = frozenset(
    "HashTable HashTableV2 MutableHashTable MutableHashTableV2 MutableHashTableOfTensors "
    "MutableHashTableOfTensorsV2 MutableDenseHashTable MutableDenseHashTableV2 AnonymousHashTable".split()
)
FILLS_FROM_FILE: Final = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
FILLS_FROM_TENSORS: Final = frozenset(
    {"InitializeTable", "InitializeTableV2", "LookupTableImport", "LookupTableImportV2"}
)
FILLS: Final = FILLS_FROM_FILE | FILLS_FROM_TENSORS
LOOKUPS: Final = frozenset({"LookupTableFind", "LookupTableFindV2"})
TABLE_EXPORTS: Final = frozenset({"LookupTableExport", "LookupTableExportV2"})

#: core/ops/array_ops.cc, math_ops.cc. Hand on a value as it is: of a tensor, a reference, a handle.
COPIES: Final = frozenset({"Identity", "StopGradient", "Snapshot"})
IDENTITIES: Final = frozenset({"Identity", "RefIdentity"})
REFERENCE_CARRIERS: Final = frozenset({"RefSwitch", "RefEnter", "RefIdentity"})
#: What carries a reference into, within and out of branches and loops.
REFERENCE_PATHS: Final = REFERENCE_CARRIERS | {"RefMerge", "RefNextIteration", "RefExit"}
HANDLE_CARRIERS: Final = frozenset({"Switch", "Enter", "Identity"})
HANDLE_READS: Final = frozenset({"ReadVariableOp", "ResourceGather", "VariableShape"})
SELECTS: Final = frozenset({"Select", "SelectV2"})
SUMS: Final = frozenset({"Add", "AddV2"})
GATHERS: Final = frozenset({"Gather", "GatherV2", "ResourceGather"})
#: Only move elements; and what tells them where to.
MOVES: Final = COPIES | frozenset(
    "Const ConcatV2 Concat Reshape StridedSlice Slice Split SplitV Transpose Pack Unpack ExpandDims Squeeze "
    "GatherV2 Gather ReverseV2 ZerosLike Fill Shape ShapeN Size Rank Range ConcatOffset".split()
)
#: Without state, I/O or randomness: what may stand between variables and the parameters made of them.
ARITHMETIC: Final = MOVES | frozenset(
    "PreventGradient ReadVariableOp Cast ReverseSequence Tile Pad PadV2 OnesLike BroadcastTo Bitcast Add "
    "AddV2 AddN BiasAdd Sub Mul Div RealDiv FloorDiv Neg Abs Sign Square Sqrt Rsqrt Reciprocal Pow Exp "
    "Log Tanh Sigmoid Softplus Relu Maximum Minimum ClipByValue Sum Mean Max Min Prod L2Loss MatMul "
    "BatchMatMul BatchMatMulV2 Diag DiagPart MatrixDiag Select SelectV2 Greater GreaterEqual Less "
    "LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot".split()
)
#: Such ops as make predicates, rates and shapes: what constant folding runs.
FOLDABLE: Final = frozenset(
    "Const Identity Cast Reshape Squeeze ExpandDims Pack StridedSlice Slice ConcatV2 Transpose Fill "
    "ZerosLike OnesLike Add AddV2 Sub Mul Div RealDiv Maximum Minimum Neg Abs Less LessEqual Greater "
    "GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot Select SelectV2 Prod Sum Range Floor "
    "FloorDiv FloorMod Rank Size Shape All Any".split()
)
#: core/ops/script_ops.cc: call a function of the program that made the graph, by a token.
PYTHON: Final = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
#: core/ops/random_ops.cc, stateless_random_ops.cc, candidate_sampling_ops.cc.
RANDOM: Final = frozenset(
    "RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt RandomGamma RandomGammaGrad "
    "RandomPoisson RandomPoissonV2 Multinomial RandomShuffle ParameterizedTruncatedNormal "
    "StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomNormalV2 "
    "StatelessTruncatedNormal StatelessMultinomial LogUniformCandidateSampler "
    "UniformCandidateSampler RandomCrop".split()
)
#: core/ops/parsing_ops.cc.
PARSERS: Final = frozenset(
    "ParseExample ParseExampleV2 ParseSingleExample ParseSequenceExample ParseSequenceExampleV2 "
    "ParseSingleSequenceExample".split()
)


def _sections() -> dict[str, frozenset[str]]:
    """Read the ops of each section of `pure_ops.txt`, by the heading's first word."""
    sections: dict[str, set[str]] = {}
    for block in Path(__file__).with_name("pure_ops.txt").read_text(encoding="utf-8").split("\n\n")[1:]:
        heading, _, names = block.partition("\n")
        sections.setdefault(heading.strip("# ").partition(":")[0], set()).update(names.split())
    return {heading: frozenset(names) for heading, names in sections.items()}


#: The ops that may run while verifying, as `safe_ops` checks.
SECTIONS: Final = _sections()
PURE: Final[frozenset[str]] = frozenset().union(*SECTIONS.values())
#: Those whose state between runs stays within the graph.
STATEFUL: Final = SECTIONS["stateful"]
