"""Numbers of the proof: sizes of feeds and runs, and limits of equality.

Only numbers stand here, so every module of the proof may import them. Sizes are (time, batch). A share is of
the largest value of a tensor or, where that is said, of its spread: its largest value less its smallest.
"""

from collections.abc import Mapping
from typing import Final

# --- Feeds of the whole model -------------------------------------------------------------------------------

#: The seed of random inputs, unless the user chooses another.
SEED: Final = 20240229
#: Sizes of the feeds, one feed for each: more steps than `lower.tensorflow.layer_stack` computes as a block,
#: and fewer. A format adds its `sizes`; `source_runs.choose_feeds` takes what the model accepts.
FEED_SIZES: Final = ((17, 3), (9, 2))
#: The same where each recurrence needs more than the memory budget (`weights.lazy.exceeds_memory_budget`).
#: Their loops take 10 steps at a time, then 1 (`lower.tensorflow.layer_stack`); those of small ones also
#: take 16.
FEED_SIZES_OF_LARGE: Final = ((12, 2), (2, 3))
#: A further size where weights stay variables: fewer steps than `lower.tensorflow.layer_stack` takes a block
#: for there.
FEED_SIZE_OF_VARIABLES: Final = (2, 3)
#: Sizes for a model that takes too much memory with the usual ones.
FEED_SIZES_OF_LITTLE_MEMORY: Final = ((5, 2), (3, 3))
#: How many times the usual steps a model gets whose windows need more, in turn: a frame of audio may be 400
#: samples, 160 apart.
LONGER_FEEDS: Final = (8, 64, 512)
#: Milder feeds, tried in turn where outputs on the usual ones are not judged: the standard deviation of
#: floats, and the size.
MILDER_FEEDS: Final = ((0.1, (9, 2)), (0.01, (2, 3)))
#: The most ways to call unknown axes time or batch that differ from input to input.
MOST_MIXED_AXES: Final = 64
#: The most values that an input may have: a wrong reading of the axes multiplies two long ones.
MOST_INPUT_VALUES: Final = 1 << 20
#: The same as a multiple of the values of a usual input, where that is more.
MOST_TIMES_USUAL_INPUT: Final = 512
#: The most values that are drawn at all, before a reading of the axes is tried.
MOST_DRAWN_VALUES: Final = 1 << 24

# --- Rounding noise and bounds ------------------------------------------------------------------------------

#: The relative rounding of half and bfloat16.
ROUNDING_OF_HALF: Final[Mapping[str, float]] = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
#: The bound of a type without noise, absolute and relative: half and bfloat16 are judged by their rounding.
#: Types without a row have that of float32.
TOLERANCES: Final[Mapping[str, float]] = {"float64": 1e-12, "float32": 1e-5, **ROUNDING_OF_HALF}
#: Evaluations of the noise beside the first.
NOISE_DRAWS: Final = 3
#: Further ones of all feeds, at most, before an output differs for certain.
MORE_NOISE_DRAWS: Final = 8
#: Times its noise that a bound widens to: another program was seen to err 8 times as far as NumPy's
#: evaluations, in whole models and in recurrences alone, which amplify their rounding.
NOISE_MARGIN: Final = 10
#: The same for half and bfloat16, whose bound is their rounding, a thousandth and more of a value.
NOISE_MARGIN_OF_HALF: Final = 2
#: The error of an output in 8 bits, as a share of its spread on the user's inputs, unless the user gives one:
#: 32 of 256 numbers. Exchanged gates move an output by a share of its spread that is several times as large.
SHARE_OF_INT8: Final = 1 / 8
#: Tolerances below which rounding that no evaluation has shown yet may be why an output differs.
DOUBTFUL_TOLERANCES: Final = 100
#: The largest bound that says something of an output, as a share of its spread.
SHARP: Final = 1e-2
#: The same for half and bfloat16, whose rounding alone is a tenth of that share or more, and for recordings.
SHARP_OF_HALF: Final = 1e-1
#: The share of its spread by which a recurrence is disturbed, to find the outputs that depend on it.
DISTURBANCE: Final = 1e-2
#: Bounds within which two scores are too close to call: each may be off by one.
CLOSE_SCORES: Final = 2
#: The rounding of TF32, which keeps 10 of float32's 23 bits of mantissa (tensorflow/community
#: rfcs/20200520-tensor-float-32.md).
TF32: Final = 2.0**-10
#: So many roundings of float32 are one of TF32. cuDNN 9.19.0 on an H200 was 590 to 2,400 times as far from
#: float64 with TF32 as without; errors grow with depth and weights (docs/cudnn-rounding.md).
TF32_ROUNDINGS: Final = 2**13

# --- Rows of a batch, chunks and searches -------------------------------------------------------------------

#: The share of an output's spread that other rows of a batch must move: less may be rounding.
NEIGHBOUR_SHARE: Final = 1e-3
#: The same in times the output's noise.
NEIGHBOUR_NOISE_MARGIN: Final = 100.0
#: Steps of the chunks that are tried beside ragged ones.
CHUNK_STEPS: Final = (1, 7)
#: The most steps of a ragged chunk.
MOST_RAGGED_STEPS: Final = 5
#: Ragged chunks before their sizes repeat.
RAGGED_CHUNKS: Final = 11
#: The tolerance of a search's score, relative and absolute, beside its sum's rounding and its noise.
SCORE_TOLERANCE: Final = 2e-6
#: What an addition of scores in float32 may be wrong by, relative.
SCORE_SUM_ROUNDING: Final = 2.0**-24
#: Times its noise that the tolerance of a score widens by.
SCORE_NOISE_MARGIN: Final = 10
#: How often other tokens and states are tried, until a choice is clear and an end is found.
SEARCH_ROUNDS: Final = 4
#: The share of tokens that a random mask has.
MASKED_TOKENS: Final = 0.3
#: How far a sum over the vocabulary may be from 1, by type: of rounding, and of bounds such as 1e-7 for each
#: token.
PROBABILITY_SUMS: Final[Mapping[str, float]] = {"float16": 3e-2, "bfloat16": 1e-1, "float32": 1e-3}
#: What rounding may move a probability of 0 or 1.
PROBABILITY_ROUNDING: Final = 1e-5

# --- Layers of Keras that were traced -----------------------------------------------------------------------

#: The share that rounding may move, by the type that a layer computes in; others have that of float32.
LAYER_TOLERANCES: Final[Mapping[str, float]] = {
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "float32": 2e-5,
    "float64": 1e-9,
}
#: Layers with more values in their inputs and weights are not computed again.
MOST_LAYER_VALUES: Final = 2**20
#: The size that an open axis has at most on the smallest feed.
OPEN_AXIS_SIZE: Final = 32

# --- Recurrences alone, and their surroundings --------------------------------------------------------------

#: Sizes of the runs beside the first step. `lower.tensorflow` has a loop for many rows, and loops of 16, 10,
#: 4 and 1 steps an iteration for few: each goes round twice for 42 steps of 3 rows.
PIECE_SIZES: Final = ((3, 32), (42, 3))
#: The same of a recurrence too large to be computed often: few steps, which may be a block, and many.
PIECE_SIZES_OF_LARGE: Final = ((2, 3), (12, 2))
#: Steps of all rows together in a run of a fixed number of steps.
PIECE_STEPS_OF_ALL_ROWS: Final = 128
#: Products of weights and inputs that the rows of a single step may cost, one run of them.
MOST_PIECE_PRODUCTS: Final = 2**34
#: Evaluations of the noise in the working type, the first in the reference's own order.
PIECE_DRAWS: Final = 3
#: Rows of a batch, drawn until the inputs are good; half and bfloat16 stop at the first.
PIECE_ROWS: Final = (32, 128, 512)
#: Standard deviations of the sums that a gate gets, tried in turn where some weight stays hidden.
PIECE_SCALES: Final = (1.0, 2.0, 0.3)
#: Tolerances that each wrong weight should show at least.
LEAST_SHOWN: Final = 10.0
#: The largest initial state of a type: products with it must be finite, in half too.
LARGEST_STATES: Final[Mapping[str, float]] = {"float16": 1e4}
#: The largest initial state of all other types.
LARGEST_STATE: Final = 1e34
#: Runs of the surroundings with everything given moved by one unit in the last place: what they move is
#: noise.
GLUE_DRAWS: Final = 2
#: The share by which the passes of a loop that comes to rest may differ.
ALIKE_PASSES: Final = 2e-2

# --- Ops around recurrences: feeds and rounds ---------------------------------------------------------------

#: The feeds whose values are recorded, smallest first.
REGION_FEEDS: Final = 2
#: The same at most, where more of them show more.
MOST_REGION_FEEDS: Final = 5
#: What is added to a size which the source compares, for each size that is tried.
BESIDE_SIZES: Final = (1, 0, -1)
#: The largest size around which others are tried.
LARGEST_SIZE: Final = 2000
#: How many sizes are tried.
MOST_SIZES: Final = 3
#: How many names that may mean other tensors are given up.
MOST_GIVEN_UP: Final = 8
#: Rounds in which rows of tables are picked one after another.
MOST_ROW_ROUNDS: Final = 24
#: How often what is given is moved by a unit in the last place, for values that are not floats.
MOST_REGION_DRAWS: Final = 16
#: Constants on whose sides gates are tried.
MOST_LIMITS: Final = 6
#: Combinations of values that decide which are given to a region.
MOST_COMBINATIONS: Final = 16
#: Regions that are left out of a round because they refuse its values.
MOST_REFUSALS: Final = 8
#: The most ops of a part whose difference on any finite values refuses a conversion.
FEW_OPS: Final = 3
#: The most values of a constant that is read for what it does to a region, and the most such constants.
MOST_CONSTANTS: Final = 16
#: The most values of a constant that may be limits.
MOST_LIMIT_VALUES: Final = 3
#: Of so few values each is put to a constant.
FEW_VALUES: Final = 8
#: Of the constants that are compared, those that are tried alone.
MOST_TRIED_ALONE: Final = 6
#: The sum of so many whole numbers beyond 2^24 is an integer of their type.
MOST_WIDE_VALUES: Final = 60
#: Bytes above which a constant is weights, which are compared by themselves.
MOST_DUPLICATE_BYTES: Final = 4096
#: Milliseconds that a run of the source may take on values of no run: loops may go round for ever on them.
SOURCE_MILLISECONDS: Final = 20_000
#: Seconds that one call of an artifact in a process of its own may take.
CALL_SECONDS: Final = 60

# --- Ops around recurrences: how far apart is still equal ---------------------------------------------------

#: Units of a value's own rounding that a float may be off: of correct regions 99 of 100 differ by 3, long
#: sums and folded constants by 25.
MOST_UNITS: Final = 64.0
#: The unit of float32, and of double, which runtimes without a double compute as float32.
ROUNDING_OF_FLOAT: Final = 2.0**-23
#: What a recurrence may be off, as a share and absolutely: how it rounds is judged elsewhere.
RECURRENT_TOLERANCE: Final = (1e-3, 1e-5)
#: The share that weights stored in half allow.
HALF_WEIGHTS_SHARE: Final = 1e-2
#: The share within which a name stands for the same tensor on a run of the whole.
SAME_TENSOR_SHARE: Final = 1e-3
#: The share of whole numbers that rounding may turn, such as places of the largest.
TURNED_INTEGERS: Final = 0.05
#: Smaller values are denormals, which runtimes flush to zero.
SMALLEST_VALUE: Final = 2e-38
#: Larger values may overflow: a runtime's exponential ends at 88.376, where it is 2.4e38.
LARGEST_VALUE: Final = 1e38
#: Values as large as this mask others, and are no measure of them.
MASKING_VALUE: Final = 1e30
#: What functions computed as a sum with 1 may be off: four times the distance of numbers just below 1.
NEAR_ONE: Final = 2.0**-22
#: The share for images: a place between two of a hundred pixels, in float32. The two are mixed by how far it
#: is from each.
BETWEEN_PIXELS: Final = 2.0**-16
