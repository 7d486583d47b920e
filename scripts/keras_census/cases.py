"""The cases: each a function that builds a model's outputs from inputs that the case asks for.

A case is written for every Keras from 2.0.9 on. Where a version has no such layer or argument, building it
raises, and that version has no such case.
"""

from collections import OrderedDict

#: Every case by its name.
CASES = OrderedDict()
#: Cases that show a difference between versions: the first ones of the archive, for tests that read no further.
WITNESSES = (
    "BatchNormalization_no_scale",
    "MultiHeadAttention_om",
    "masked_TimeDistributed_LSTM",
    "Conv2DTranspose_dilation_same",
    "Dot_32_254_243",
    "UpSampling2D_bilinear",
    "between_ActivityRegularization",
    "between_ReLU",
    "between_Softmax",
    "masked_Bidirectional_concat_steps",
    "masked_LSTM_begun",
    "masked_stateful_Bidirectional",
    "nested_model_makes_mask",
    "stacked_cells_begun",
)


class Inputs:
    """The inputs of a model under construction, by the kinds of their values."""

    def __init__(self, keras):
        self.keras = keras
        self.tensors = []
        self.kinds = []

    def add(self, kind, shape, dtype="float32", batch=None):
        name = "%s_%d" % (kind, len(self.tensors))
        if batch:
            tensor = self.keras.Input(batch_shape=(batch,) + shape, dtype=dtype, name=name)
        else:
            tensor = self.keras.Input(shape, dtype=dtype, name=name)
        self.tensors.append(tensor)
        self.kinds.append((kind, shape, batch))
        return tensor

    def steps(self, features=4, length=None, batch=None):
        """A sequence [batch, time, features], some steps all zeros."""
        return self.add("steps", (length, features), batch=batch)

    def words(self, length=None, batch=None):
        """Token ids below 9 [batch, time], 0 for padding."""
        return self.add("words", (length,), "int32", batch)

    def row(self, size):
        """A vector [batch, size]."""
        return self.add("row", (size,))

    def image(self, *shape):
        return self.add("image", shape or (6, 5, 3))

    def masked(self, features=4, length=None, batch=None):
        """A sequence of which steps of zeros are masked."""
        return self.keras.layers.Masking(name="masking")(self.steps(features, length, batch))

    def embedded(self, features=4, length=None, batch=None):
        """Embedded tokens of which 0 is masked."""
        embedding = self.keras.layers.Embedding(9, features, mask_zero=True, name="embedding")
        return embedding(self.words(length, batch))


def case(build):
    CASES[build.__name__] = build
    return build


def add(name, build):
    """Register a case of a name."""
    assert name not in CASES, name
    CASES[name] = build
    return build


def on_image(name, make, *shape):
    """A case of one layer on an image."""
    add(name, lambda keras, given: make(keras.layers)(given.image(*shape)))


def on_steps(name, make, **options):
    """A case of one layer on an unmasked sequence, and on a masked one."""
    add(name, lambda keras, given: make(keras.layers)(given.steps(**options)))


def on_masked(name, make, **options):
    """A case of one layer behind a mask."""
    add("masked_" + name, lambda keras, given: make(keras.layers)(given.masked(**options)))


def on_both(name, make, **options):
    on_steps(name, make, **options)
    on_masked(name, make, **options)


# Recurrent layers.
CELLS = ("SimpleRNN", "LSTM", "GRU")


def recurrent_cases():
    variants = OrderedDict(
        [
            ("last", {}),
            ("steps", {"return_sequences": True}),
            ("backwards", {"return_sequences": True, "go_backwards": True}),
            ("backwards_last", {"go_backwards": True}),
            ("no_bias", {"return_sequences": True, "use_bias": False}),
            ("relu", {"return_sequences": True, "activation": "relu"}),
        ]
    )
    for kind in CELLS:
        for variant, options in variants.items():
            on_both(
                "%s_%s" % (kind, variant),
                lambda layers, kind=kind, options=options: getattr(layers, kind)(3, **options),
            )
        for variant, options in [
            ("unrolled", {"unroll": True}),
            ("unrolled_backwards", {"unroll": True, "go_backwards": True}),
        ]:
            on_both(
                "%s_%s" % (kind, variant),
                lambda layers, kind=kind, options=options: getattr(layers, kind)(
                    3, return_sequences=True, **options
                ),
                length=5,
            )
            on_masked(
                "%s_%s_last" % (kind, variant),
                lambda layers, kind=kind, options=options: getattr(layers, kind)(3, **options),
                length=5,
            )
    for kind in ("LSTM", "GRU"):
        for implementation in (1, 2):
            for activation in ("hard_sigmoid", "sigmoid", "relu", "softsign"):
                on_steps(
                    "%s_%s_%d" % (kind, activation, implementation),
                    lambda layers, kind=kind, activation=activation, implementation=implementation: getattr(
                        layers, kind
                    )(3, recurrent_activation=activation, implementation=implementation),
                )
    on_both("GRU_reset_after", lambda layers: layers.GRU(3, reset_after=True, return_sequences=True))
    on_both(
        "GRU_reset_after_hard",
        lambda layers: layers.GRU(
            3, reset_after=True, recurrent_activation="hard_sigmoid", return_sequences=True
        ),
    )
    on_both("GRU_reset_before", lambda layers: layers.GRU(3, reset_after=False, return_sequences=True))
    on_steps("LSTM_no_forget_bias", lambda layers: layers.LSTM(3, unit_forget_bias=False))


recurrent_cases()


def with_states(kind, masked, **options):
    """A recurrence that begins with states, and returns its last ones."""

    def build(keras, given):
        x = (given.masked if masked else given.steps)()
        states = [given.row(3) for _ in range(2 if kind == "LSTM" else 1)]
        layer = getattr(keras.layers, kind)(3, return_sequences=True, return_state=True, **options)
        return layer(x, initial_state=states)

    return build


for _kind in CELLS:
    for _masked in (False, True):
        _start = "masked_" if _masked else ""
        add("%s%s_begun" % (_start, _kind), with_states(_kind, _masked))
        add("%s%s_begun_backwards" % (_start, _kind), with_states(_kind, _masked, go_backwards=True))


def returns_states(kind, **options):
    def build(keras, given):
        return getattr(keras.layers, kind)(3, return_state=True, **options)(given.masked())

    return build


for _kind in CELLS:
    add("masked_%s_states" % _kind, returns_states(_kind))
    add("masked_%s_states_steps" % _kind, returns_states(_kind, return_sequences=True))


def bidirectional(kind, merge, masked, **options):
    def build(keras, given):
        x = (given.embedded if masked else given.steps)()
        return keras.layers.Bidirectional(getattr(keras.layers, kind)(3, **options), merge_mode=merge)(x)

    return build


for _merge in ("concat", "sum", "mul", "ave", None):
    for _masked in (False, True):
        for _steps in (False, True):
            if _masked or _steps:
                _name = "%sBidirectional_%s_%s" % (
                    "masked_" if _masked else "",
                    _merge,
                    "steps" if _steps else "last",
                )
                add(_name, bidirectional("GRU", _merge, _masked, return_sequences=_steps))
for _kind in ("LSTM", "SimpleRNN"):
    add("masked_Bidirectional_%s" % _kind, bidirectional(_kind, "concat", True, return_sequences=True))
add(
    "masked_Bidirectional_backwards",
    bidirectional("LSTM", "concat", True, return_sequences=True, go_backwards=True),
)
add(
    "masked_Bidirectional_states",
    bidirectional("LSTM", "concat", True, return_sequences=True, return_state=True),
)


@case
def masked_Bidirectional_unrolled(keras, given):
    layers = keras.layers
    return layers.Bidirectional(layers.LSTM(3, return_sequences=True, unroll=True))(given.masked(length=5))


@case
def Bidirectional_begun(keras, given):
    layers = keras.layers
    states = [given.row(3) for _ in range(4)]
    return layers.Bidirectional(layers.LSTM(3, return_sequences=True))(given.steps(), initial_state=states)


@case
def masked_Bidirectional_begun(keras, given):
    layers = keras.layers
    states = [given.row(3) for _ in range(4)]
    return layers.Bidirectional(layers.LSTM(3, return_sequences=True))(given.masked(), initial_state=states)


@case
def masked_Bidirectional_twice(keras, given):
    layers = keras.layers
    first = layers.Bidirectional(layers.GRU(3, return_sequences=True))(given.embedded())
    return layers.Bidirectional(layers.LSTM(2, return_sequences=True), merge_mode="sum")(first)


@case
def masked_stack(keras, given):
    layers = keras.layers
    first = layers.LSTM(3, return_sequences=True)(given.embedded())
    return layers.GRU(2)(layers.SimpleRNN(4, return_sequences=True)(first))


def cells(names, masked, begun=False, wrapper=None, **options):
    """RNN of cells, stacked where there are several."""

    def build(keras, given):
        layers = keras.layers
        made = [getattr(layers, name + "Cell")(size) for name, size in names]
        x = (given.masked if masked else given.steps)()
        layer = layers.RNN(made if len(made) > 1 else made[0], return_sequences=True, **options)
        if wrapper:
            layer = layers.Bidirectional(layer)
        if not begun:
            return layer(x)
        order = made[::-1] if begun == "reversed" else made
        sizes = []
        for cell in order:
            size = cell.state_size
            sizes += list(size) if hasattr(size, "__len__") else [size]
        return layer(x, initial_state=[given.row(int(size)) for size in sizes])

    return build


for _masked in (False, True):
    _start = "masked_" if _masked else ""
    for _kind in CELLS:
        add("%s%sCell" % (_start, _kind), cells([(_kind, 3)], _masked))
        add("%s%sCell_states" % (_start, _kind), cells([(_kind, 3)], _masked, return_state=True))
    _pair = [("LSTM", 3), ("GRU", 4)]
    add(_start + "stacked_cells", cells(_pair, _masked))
    add(_start + "stacked_cells_states", cells(_pair, _masked, return_state=True))
    add(_start + "stacked_cells_begun", cells(_pair, _masked, begun=True))
    add(_start + "stacked_cells_begun_reversed", cells(_pair, _masked, begun="reversed"))
    add(
        _start + "stacked_same_begun",
        cells([("LSTM", 3), ("LSTM", 3)], _masked, begun=True, return_state=True),
    )
    add(_start + "stacked_same_states", cells([("GRU", 3), ("GRU", 3)], _masked, return_state=True))
    add(_start + "stacked_backwards", cells(_pair, _masked, go_backwards=True))
    add(_start + "stacked_Bidirectional", cells([("LSTM", 3), ("LSTM", 3)], _masked, wrapper=True))


@case
def stacked_unrolled(keras, given):
    layers = keras.layers
    layer = layers.RNN([layers.LSTMCell(3), layers.GRUCell(4)], return_sequences=True, unroll=True)
    return layer(given.masked(length=5))


def stateful(kind, masked, **options):
    def build(keras, given):
        x = given.embedded(batch=2) if masked else given.steps(batch=2)
        return getattr(keras.layers, kind)(3, stateful=True, **dict({"return_sequences": True}, **options))(x)

    return build


for _kind in CELLS:
    add("stateful_%s" % _kind, stateful(_kind, False))
    add("masked_stateful_%s" % _kind, stateful(_kind, True))
    add("masked_stateful_%s_last" % _kind, stateful(_kind, True, return_sequences=False))


@case
def masked_stateful_Bidirectional(keras, given):
    layers = keras.layers
    return layers.Bidirectional(layers.GRU(3, return_sequences=True, stateful=True))(given.embedded(batch=2))


@case
def stateful_stacked(keras, given):
    layers = keras.layers
    return layers.RNN([layers.LSTMCell(3), layers.LSTMCell(2)], stateful=True)(given.steps(batch=2))


def convolved(masked, **options):
    def build(keras, given):
        x = given.add("frames", (4, 5, 6, 2))
        if masked:
            x = keras.layers.Masking()(x)
        return keras.layers.ConvLSTM2D(2, 3, **options)(x)

    return build


add("ConvLSTM2D_same", convolved(False, padding="same", return_sequences=True))
add("ConvLSTM2D_valid", convolved(False))
add("ConvLSTM2D_strides", convolved(False, strides=2, return_sequences=True))
add("ConvLSTM2D_dilation", convolved(False, dilation_rate=2))
add("ConvLSTM2D_backwards", convolved(False, go_backwards=True, return_sequences=True))
add("ConvLSTM2D_no_bias", convolved(False, use_bias=False))
add("ConvLSTM2D_sigmoid", convolved(False, recurrent_activation="sigmoid"))
add("ConvLSTM2D_states", convolved(False, return_state=True))


@case
def Bidirectional_ConvLSTM2D(keras, given):
    layers = keras.layers
    layer = layers.ConvLSTM2D(2, 3, padding="same", return_sequences=True)
    return layers.Bidirectional(layer)(given.add("frames", (4, 5, 6, 2)))


# What stands behind a mask.
def behind_mask(name, make, **options):
    """A layer between a mask and a recurrence: does the mask pass it, and does it use it."""

    def build(keras, given):
        x = make(keras.layers)(given.embedded(**options))
        return [x, keras.layers.LSTM(3)(x)]

    add("between_%s" % name, build)


behind_mask("Dense", lambda layers: layers.Dense(3))
behind_mask("Activation", lambda layers: layers.Activation("tanh"))
behind_mask("softmax", lambda layers: layers.Activation("softmax"))
behind_mask("Dense_softmax", lambda layers: layers.Dense(3, activation="softmax"))
behind_mask("Softmax", lambda layers: layers.Softmax())
behind_mask("Softmax_time", lambda layers: layers.Softmax(axis=1))
behind_mask("Dropout", lambda layers: layers.Dropout(0.5))
behind_mask("SpatialDropout1D", lambda layers: layers.SpatialDropout1D(0.5))
behind_mask("GaussianNoise", lambda layers: layers.GaussianNoise(0.5))
behind_mask("GaussianDropout", lambda layers: layers.GaussianDropout(0.5))
behind_mask("AlphaDropout", lambda layers: layers.AlphaDropout(0.5))
behind_mask("BatchNormalization", lambda layers: layers.BatchNormalization())
behind_mask("LayerNormalization", lambda layers: layers.LayerNormalization())
behind_mask("LeakyReLU", lambda layers: layers.LeakyReLU())
behind_mask("PReLU", lambda layers: layers.PReLU(shared_axes=[1]))
behind_mask("ELU", lambda layers: layers.ELU())
behind_mask("ReLU", lambda layers: layers.ReLU())
behind_mask("ThresholdedReLU", lambda layers: layers.ThresholdedReLU(0.2))
behind_mask("ActivityRegularization", lambda layers: layers.ActivityRegularization(0.1))
behind_mask("TimeDistributed_Dense", lambda layers: layers.TimeDistributed(layers.Dense(3)))
behind_mask(
    "TimeDistributed_softmax", lambda layers: layers.TimeDistributed(layers.Dense(3, activation="softmax"))
)
behind_mask("TimeDistributed_Softmax", lambda layers: layers.TimeDistributed(layers.Softmax()), length=5)
behind_mask("Masking", lambda layers: layers.Masking(0.3))
behind_mask("LSTM", lambda layers: layers.LSTM(3, return_sequences=True))
behind_mask("GRU_backwards", lambda layers: layers.GRU(3, return_sequences=True, go_backwards=True))
behind_mask("Bidirectional", lambda layers: layers.Bidirectional(layers.GRU(3, return_sequences=True)))
behind_mask("RNN", lambda layers: layers.RNN([layers.GRUCell(3), layers.GRUCell(2)], return_sequences=True))
behind_mask("Reshape", lambda layers: layers.Reshape((5, 4)), length=5)
behind_mask("Permute", lambda layers: layers.Permute((2, 1)), length=5)
behind_mask("Conv1D", lambda layers: layers.Conv1D(3, 2))
behind_mask("Conv1D_same", lambda layers: layers.Conv1D(3, 3, padding="same"))
behind_mask("ZeroPadding1D", lambda layers: layers.ZeroPadding1D(1))
behind_mask("MaxPooling1D", lambda layers: layers.MaxPooling1D(2))
behind_mask("UnitNormalization", lambda layers: layers.UnitNormalization())
behind_mask("GroupNormalization", lambda layers: layers.GroupNormalization(2))
behind_mask("EinsumDense", lambda layers: layers.EinsumDense("abc,cd->abd", (None, 3)))


def at_end_of_mask(name, make, **options):
    add("masked_%s" % name, lambda keras, given: make(keras.layers)(given.embedded(**options)))


at_end_of_mask("GlobalAveragePooling1D", lambda layers: layers.GlobalAveragePooling1D())
at_end_of_mask("GlobalAveragePooling1D_kept", lambda layers: layers.GlobalAveragePooling1D(keepdims=True))
at_end_of_mask("GlobalMaxPooling1D", lambda layers: layers.GlobalMaxPooling1D())
at_end_of_mask("Flatten", lambda layers: layers.Flatten(), length=5)
at_end_of_mask("AveragePooling1D", lambda layers: layers.AveragePooling1D(2))


@case
def masked_GlobalAveragePooling1D_first(keras, given):
    x = keras.layers.Masking()(given.steps(4, 5))
    return keras.layers.GlobalAveragePooling1D(data_format="channels_first")(x)


@case
def masked_TimeDistributed_LSTM(keras, given):
    layers = keras.layers
    x = layers.Masking()(given.add("frames", (4, 5, 3)))
    return layers.TimeDistributed(layers.LSTM(2))(x)


@case
def TimeDistributed_of_masked(keras, given):
    """Words in sentences in documents: the inner model has the mask."""
    layers = keras.layers
    words = keras.Input((5,), dtype="int32", name="inner")
    inner = keras.Model(words, layers.LSTM(3)(layers.Embedding(9, 4, mask_zero=True)(words)))
    return layers.TimeDistributed(inner)(given.add("words", (4, 5), "int32"))


@case
def masked_TimeDistributed_model(keras, given):
    layers = keras.layers
    row = keras.Input((4,), name="inner")
    inner = keras.Model(row, layers.Dense(3, activation="tanh")(layers.Dense(2)(row)))
    return layers.LSTM(2)(layers.TimeDistributed(inner)(given.embedded()))


@case
def TimeDistributed_Conv2D(keras, given):
    layers = keras.layers
    return layers.TimeDistributed(layers.Conv2D(2, 3))(given.add("frames", (4, 5, 6, 2)))


@case
def TimeDistributed_BatchNormalization(keras, given):
    layers = keras.layers
    return layers.TimeDistributed(layers.BatchNormalization())(given.steps(4, 5))


@case
def TimeDistributed_Flatten(keras, given):
    layers = keras.layers
    return layers.LSTM(3)(layers.TimeDistributed(layers.Flatten())(given.add("frames", (4, 5, 3))))


@case
def nested_model_with_mask(keras, given):
    """A model inside a model: the mask goes in and comes out."""
    layers = keras.layers
    inside = keras.Input((None, 4), name="inside")
    inner = keras.Model(inside, layers.LSTM(3, return_sequences=True)(inside), name="inner")
    return layers.GRU(2)(inner(given.embedded()))


@case
def nested_model_makes_mask(keras, given):
    layers = keras.layers
    inside = keras.Input((None,), dtype="int32", name="inside")
    inner = keras.Model(inside, layers.Embedding(9, 4, mask_zero=True)(inside), name="inner")
    return layers.GRU(2)(inner(given.words()))


@case
def nested_sequential_makes_mask(keras, given):
    layers = keras.layers
    inner = keras.Sequential([layers.Embedding(9, 4, mask_zero=True, input_length=5), layers.Dense(3)])
    return layers.LSTM(2)(inner(given.words(5)))


# Merges.
def merged(name, make, masks=(False, False), shapes=None):
    def build(keras, given):
        tensors = []
        for place, masked in enumerate(masks):
            x = given.steps(4)
            tensors.append(keras.layers.Masking()(x) if masked else x)
        x = make(keras.layers)(tensors)
        return [x, keras.layers.LSTM(3)(x)]

    add(name, build)


for _kind in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate"):
    for _masks in ((False, False), (True, True), (True, False), (False, True)):
        merged(
            "%s_%s" % (_kind, "".join("m" if masked else "o" for masked in _masks)),
            lambda layers, kind=_kind: getattr(layers, kind)(),
            masks=_masks,
        )
for _masks in ((False, False), (True, True), (True, False), (False, True)):
    merged(
        "Concatenate_time_%s" % "".join("m" if masked else "o" for masked in _masks),
        lambda layers: layers.Concatenate(axis=1),
        masks=_masks,
    )


def merged_shapes(name, make, *shapes):
    def build(keras, given):
        return make(keras.layers)([given.add("image", shape) for shape in shapes])

    add(name, build)


for _kind in ("Add", "Multiply", "Average", "Maximum", "Subtract"):
    merged_shapes("%s_broadcast" % _kind, lambda layers, kind=_kind: getattr(layers, kind)(), (5, 4), (1, 4))
    merged_shapes("%s_ranks" % _kind, lambda layers, kind=_kind: getattr(layers, kind)(), (5, 4), (4,))
merged_shapes("Add_ranks_3", lambda layers: layers.Add(), (3, 5, 4), (4,))
merged_shapes("Concatenate_axis_2", lambda layers: layers.Concatenate(axis=2), (5, 4), (5, 3))
for _axes, _first, _second in [
    (1, (4,), (4,)),
    (2, (5, 4), (3, 4)),
    (1, (5, 4), (5, 3)),
    ((2, 1), (5, 4), (4, 3)),
    ((1, 2), (5, 4), (3, 5)),
    (-1, (5, 4), (3, 4)),
    ((2, 1), (5, 4), (4,)),
    ((1, 2), (4,), (3, 4)),
    ((1, 1), (4,), (4, 3)),
    ((3, 1), (2, 5, 4), (4, 3)),
    ((2, 1), (5, 4), (4, 3, 2)),
    ((3, 2), (2, 5, 4), (2, 4, 3)),
    ((3, 3), (2, 5, 4), (2, 5, 4)),
    ((1, 1), (2, 5, 4), (2, 5, 4)),
    ((2, 2), (2, 5, 4), (2, 5, 4)),
    ((3, 2), (2, 5, 4), (5, 4)),
    ((2, 3), (5, 4), (2, 5, 4)),
    (3, (4, 2, 3), (4, 2, 3)),
    (2, (4, 3, 2), (4, 3, 2)),
]:
    _name = "Dot_%s_%s_%s" % (
        "".join(map(str, _axes)) if isinstance(_axes, tuple) else _axes,
        "".join(map(str, _first)),
        "".join(map(str, _second)),
    )
    merged_shapes(_name, lambda layers, axes=_axes: layers.Dot(axes), _first, _second)
merged_shapes("Dot_normalized", lambda layers: layers.Dot(-1, normalize=True), (4,), (4,))
merged_shapes("Dot_normalized_steps", lambda layers: layers.Dot(2, normalize=True), (5, 4), (3, 4))


@case
def masked_Dot(keras, given):
    x = given.embedded()
    return keras.layers.Dot(2)([x, x])


# Attention.
def attention(name, make, masks=(False, False), **options):
    def build(keras, given):
        query = given.embedded(4) if masks[0] else given.steps(4)
        value = given.embedded(4) if masks[1] else given.steps(4)
        if masks == (True, True):
            value = keras.layers.Embedding(9, 4, mask_zero=True, name="second")(given.words())
        return make(keras.layers, query, value)

    add(name, build)


def attention_cases():
    for masks in ((False, False), (True, True), (False, True), (True, False)):
        start = "Attention_" + "".join("m" if masked else "o" for masked in masks)
        attention(start, lambda layers, q, v: layers.Attention()([q, v]), masks)
        attention(start + "_scale", lambda layers, q, v: layers.Attention(use_scale=True)([q, v]), masks)
        attention("Additive" + start, lambda layers, q, v: layers.AdditiveAttention()([q, v]), masks)
        attention("MultiHead" + start, lambda layers, q, v: layers.MultiHeadAttention(2, 3)(q, v), masks)
        attention(
            "MultiHead" + start + "_causal_arguments",
            lambda layers, q, v: layers.MultiHeadAttention(2, 3)(v, v),
            masks,
        )
    attention("Attention_causal", lambda layers, q, v: layers.Attention(causal=True)([q, q]))
    attention(
        "Attention_causal_masked", lambda layers, q, v: layers.Attention(causal=True)([q, q]), (True, False)
    )
    attention("AdditiveAttention_causal", lambda layers, q, v: layers.AdditiveAttention(causal=True)([q, q]))
    attention(
        "Attention_use_causal_mask", lambda layers, q, v: layers.Attention()([q, q], use_causal_mask=True)
    )
    attention("Attention_concat", lambda layers, q, v: layers.Attention(score_mode="concat")([q, v]))
    attention(
        "Attention_key", lambda layers, q, v: layers.Attention()([q, v, layers.Dense(4)(v)]), (False, True)
    )
    attention(
        "MultiHeadAttention_axes",
        lambda layers, q, v: layers.MultiHeadAttention(2, 3, value_dim=2, use_bias=False)(q, v),
    )
    attention(
        "MultiHeadAttention_output_shape",
        lambda layers, q, v: layers.MultiHeadAttention(2, 3, output_shape=(5,))(q, v),
    )
    attention(
        "MultiHeadAttention_then_LSTM",
        lambda layers, q, v: layers.LSTM(2)(layers.MultiHeadAttention(2, 3)(q, q)),
        (True, False),
    )
    attention(
        "MultiHeadAttention_causal",
        lambda layers, q, v: layers.MultiHeadAttention(2, 3)(q, q, use_causal_mask=True),
        (True, False),
    )


attention_cases()


# Layers of convolution.
def convolution_cases():
    for padding in ("valid", "same"):
        for strides in (1, 2):
            on_image(
                "Conv2D_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.Conv2D(2, 3, padding=p, strides=s),
            )
            on_image(
                "SeparableConv2D_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.SeparableConv2D(
                    2, 3, padding=p, strides=s, depth_multiplier=2
                ),
            )
            on_image(
                "DepthwiseConv2D_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.DepthwiseConv2D(
                    3, padding=p, strides=s, depth_multiplier=2
                ),
            )
            on_image(
                "Conv2DTranspose_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.Conv2DTranspose(2, 3, padding=p, strides=s),
            )
            on_image(
                "Conv3D_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.Conv3D(2, 2, padding=p, strides=s),
                4,
                5,
                6,
                2,
            )
            on_image(
                "Conv3DTranspose_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.Conv3DTranspose(2, 2, padding=p, strides=s),
                3,
                4,
                5,
                2,
            )
            on_steps(
                "Conv1D_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.Conv1D(2, 3, padding=p, strides=s),
                length=7,
            )
            on_steps(
                "SeparableConv1D_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.SeparableConv1D(2, 3, padding=p, strides=s),
                length=7,
            )
            on_steps(
                "Conv1DTranspose_%s_%d" % (padding, strides),
                lambda layers, p=padding, s=strides: layers.Conv1DTranspose(2, 3, padding=p, strides=s),
                length=7,
            )
        on_image(
            "Conv2D_dilation_%s" % padding,
            lambda layers, p=padding: layers.Conv2D(2, 2, padding=p, dilation_rate=2),
        )
        on_image(
            "SeparableConv2D_dilation_%s" % padding,
            lambda layers, p=padding: layers.SeparableConv2D(2, 2, padding=p, dilation_rate=2),
        )
        on_image(
            "DepthwiseConv2D_dilation_%s" % padding,
            lambda layers, p=padding: layers.DepthwiseConv2D(2, padding=p, dilation_rate=2),
        )
        on_image(
            "Conv2DTranspose_dilation_%s" % padding,
            lambda layers, p=padding: layers.Conv2DTranspose(2, 2, padding=p, dilation_rate=2),
        )
        on_image(
            "Conv3D_dilation_%s" % padding,
            lambda layers, p=padding: layers.Conv3D(2, 2, padding=p, dilation_rate=2),
            5,
            5,
            6,
            2,
        )
        on_steps(
            "Conv1D_dilation_%s" % padding,
            lambda layers, p=padding: layers.Conv1D(2, 2, padding=p, dilation_rate=2),
            length=7,
        )
        on_steps(
            "SeparableConv1D_dilation_%s" % padding,
            lambda layers, p=padding: layers.SeparableConv1D(2, 2, padding=p, dilation_rate=2),
            length=7,
        )
        on_image(
            "Conv2D_uneven_%s" % padding,
            lambda layers, p=padding: layers.Conv2D(2, (2, 3), padding=p, strides=(2, 1), activation="elu"),
        )
    on_image("Conv2D_no_bias", lambda layers: layers.Conv2D(2, 3, use_bias=False, activation="relu"))
    on_image("Conv2D_groups", lambda layers: layers.Conv2D(4, 3, groups=2), 6, 5, 4)
    on_image(
        "Conv2DTranspose_output_padding",
        lambda layers: layers.Conv2DTranspose(2, 3, strides=2, output_padding=1),
    )
    on_image(
        "Conv2DTranspose_output_padding_same",
        lambda layers: layers.Conv2DTranspose(2, 3, strides=(2, 3), padding="same", output_padding=(0, 1)),
    )
    on_image("Conv2DTranspose_kernel_1", lambda layers: layers.Conv2DTranspose(2, 1, strides=2))
    on_image("Conv2DTranspose_strides_3", lambda layers: layers.Conv2DTranspose(2, (2, 4), strides=3))
    on_steps("Conv1D_causal", lambda layers: layers.Conv1D(2, 3, padding="causal", dilation_rate=2))
    on_steps("Conv1D_causal_strides", lambda layers: layers.Conv1D(2, 3, padding="causal", strides=2))
    on_steps("SeparableConv1D_causal", lambda layers: layers.SeparableConv1D(2, 3, padding="causal"))
    on_steps("DepthwiseConv1D", lambda layers: layers.DepthwiseConv1D(3, depth_multiplier=2))
    for implementation in (1, 2, 3):
        on_image(
            "LocallyConnected2D_%d" % implementation,
            lambda layers, n=implementation: layers.LocallyConnected2D(
                2, (2, 3), strides=(1, 2), implementation=n
            ),
        )
        on_steps(
            "LocallyConnected1D_%d" % implementation,
            lambda layers, n=implementation: layers.LocallyConnected1D(2, 3, strides=2, implementation=n),
            length=7,
        )
    on_image("LocallyConnected2D", lambda layers: layers.LocallyConnected2D(2, (2, 3), strides=(1, 2)))
    on_steps("LocallyConnected1D", lambda layers: layers.LocallyConnected1D(2, 3, strides=2), length=7)


convolution_cases()


def pooling_cases():
    for kind in ("Max", "Average"):
        for padding in ("valid", "same"):
            on_image(
                "%sPooling2D_%s" % (kind, padding),
                lambda layers, k=kind, p=padding: getattr(layers, k + "Pooling2D")(
                    (2, 3), strides=(2, 1), padding=p
                ),
            )
            on_image(
                "%sPooling3D_%s" % (kind, padding),
                lambda layers, k=kind, p=padding: getattr(layers, k + "Pooling3D")(2, padding=p),
                5,
                4,
                6,
                2,
            )
            on_steps(
                "%sPooling1D_%s" % (kind, padding),
                lambda layers, k=kind, p=padding: getattr(layers, k + "Pooling1D")(3, strides=2, padding=p),
            )
        on_image(
            "Global%sPooling2D" % kind, lambda layers, k=kind: getattr(layers, "Global%sPooling2D" % k)()
        )
        on_image(
            "Global%sPooling2D_first" % kind,
            lambda layers, k=kind: getattr(layers, "Global%sPooling2D" % k)(data_format="channels_first"),
        )
        on_image(
            "Global%sPooling3D" % kind,
            lambda layers, k=kind: getattr(layers, "Global%sPooling3D" % k)(),
            5,
            4,
            6,
            2,
        )
        on_steps(
            "Global%sPooling1D" % kind, lambda layers, k=kind: getattr(layers, "Global%sPooling1D" % k)()
        )
        on_steps(
            "Global%sPooling1D_first" % kind,
            lambda layers, k=kind: getattr(layers, "Global%sPooling1D" % k)(data_format="channels_first"),
            length=5,
        )
        on_image(
            "Global%sPooling2D_kept" % kind,
            lambda layers, k=kind: getattr(layers, "Global%sPooling2D" % k)(keepdims=True),
        )
        on_steps(
            "%sPooling1D_first" % kind,
            lambda layers, k=kind: getattr(layers, k + "Pooling1D")(2, data_format="channels_first"),
            length=5,
        )


pooling_cases()

on_image("UpSampling2D", lambda layers: layers.UpSampling2D((2, 3)))
on_image("UpSampling2D_bilinear", lambda layers: layers.UpSampling2D((2, 3), interpolation="bilinear"))
on_image(
    "UpSampling2D_bilinear_first",
    lambda layers: layers.UpSampling2D(2, interpolation="bilinear", data_format="channels_first"),
)
on_image("UpSampling2D_first", lambda layers: layers.UpSampling2D(2, data_format="channels_first"))
on_image("UpSampling2D_bicubic", lambda layers: layers.UpSampling2D(2, interpolation="bicubic"))
on_image("UpSampling2D_area", lambda layers: layers.UpSampling2D(2, interpolation="area"))
on_image("UpSampling3D", lambda layers: layers.UpSampling3D(2), 3, 4, 2, 2)
on_steps("UpSampling1D", lambda layers: layers.UpSampling1D(3))
on_image("ZeroPadding2D", lambda layers: layers.ZeroPadding2D(((1, 2), (0, 3))))
on_image(
    "ZeroPadding2D_first", lambda layers: layers.ZeroPadding2D(((1, 2), (0, 3)), data_format="channels_first")
)
on_image("ZeroPadding3D", lambda layers: layers.ZeroPadding3D((1, 0, 2)), 3, 4, 2, 2)
on_image("Cropping2D", lambda layers: layers.Cropping2D(((1, 2), (0, 3))))
on_image("Cropping2D_first", lambda layers: layers.Cropping2D(((1, 1), (0, 2)), data_format="channels_first"))
on_image("Cropping3D", lambda layers: layers.Cropping3D((1, 0, 1)), 3, 4, 5, 2)
on_steps("ZeroPadding1D", lambda layers: layers.ZeroPadding1D((2, 1)))
on_steps("Cropping1D", lambda layers: layers.Cropping1D((2, 1)))

# Normalisation.
on_image("BatchNormalization", lambda layers: layers.BatchNormalization())
on_image("BatchNormalization_axis_1", lambda layers: layers.BatchNormalization(axis=1))
on_image("BatchNormalization_axis_2", lambda layers: layers.BatchNormalization(axis=2))
on_image("BatchNormalization_axes", lambda layers: layers.BatchNormalization(axis=[1, 2]))
on_image("BatchNormalization_plain", lambda layers: layers.BatchNormalization(scale=False, center=False))
on_image("BatchNormalization_no_scale", lambda layers: layers.BatchNormalization(scale=False, epsilon=1e-6))
on_image("BatchNormalization_no_center", lambda layers: layers.BatchNormalization(center=False, epsilon=0.1))
on_image("BatchNormalization_not_fused", lambda layers: layers.BatchNormalization(fused=False))
on_image("BatchNormalization_frozen", lambda layers: layers.BatchNormalization(trainable=False))
on_image("BatchNormalization_virtual", lambda layers: layers.BatchNormalization(virtual_batch_size=1))
on_image("BatchNormalization_renorm", lambda layers: layers.BatchNormalization(renorm=True))
on_image("BatchNormalization_3D", lambda layers: layers.BatchNormalization(), 3, 4, 5, 2)
on_steps("BatchNormalization_steps", lambda layers: layers.BatchNormalization())
on_steps("BatchNormalization_steps_axis_1", lambda layers: layers.BatchNormalization(axis=1), length=5)
add("BatchNormalization_row", lambda keras, given: keras.layers.BatchNormalization()(given.row(5)))
on_image("LayerNormalization", lambda layers: layers.LayerNormalization())
on_image("LayerNormalization_axes", lambda layers: layers.LayerNormalization(axis=[1, 2]))
on_image("LayerNormalization_axis_1", lambda layers: layers.LayerNormalization(axis=1, epsilon=0.1))
on_image("LayerNormalization_all", lambda layers: layers.LayerNormalization(axis=[1, 2, 3], scale=False))
on_steps("LayerNormalization_steps", lambda layers: layers.LayerNormalization(center=False))
on_steps("UnitNormalization", lambda layers: layers.UnitNormalization())
on_image("GroupNormalization", lambda layers: layers.GroupNormalization(2), 4, 5, 6)

# Activations.
for _name in (
    "elu",
    "softmax",
    "softplus",
    "softsign",
    "selu",
    "relu",
    "tanh",
    "sigmoid",
    "hard_sigmoid",
    "exponential",
    "linear",
    "swish",
    "gelu",
    "mish",
):
    on_steps("activation_%s" % _name, lambda layers, name=_name: layers.Activation(name))
add("activation_softmax_row", lambda keras, given: keras.layers.Activation("softmax")(given.row(5)))
on_image("activation_softmax_image", lambda layers: layers.Activation("softmax"))
for _name, _make in [
    ("LeakyReLU", lambda layers: layers.LeakyReLU()),
    ("LeakyReLU_alpha", lambda layers: layers.LeakyReLU(0.1)),
    ("ELU_alpha", lambda layers: layers.ELU(0.5)),
    ("ThresholdedReLU", lambda layers: layers.ThresholdedReLU(0.5)),
    ("ReLU", lambda layers: layers.ReLU()),
    ("ReLU_max", lambda layers: layers.ReLU(1.5)),
    ("ReLU_slope", lambda layers: layers.ReLU(1.5, 0.2, 0.3)),
    ("ReLU_threshold", lambda layers: layers.ReLU(threshold=0.3)),
    ("ReLU_slope_alone", lambda layers: layers.ReLU(negative_slope=0.2)),
    ("Softmax", lambda layers: layers.Softmax()),
    ("Softmax_axis_1", lambda layers: layers.Softmax(axis=1)),
    ("Softmax_axes", lambda layers: layers.Softmax(axis=(1, 2))),
]:
    on_steps(_name, _make)
on_steps("PReLU", lambda layers: layers.PReLU(), length=5)
on_image("PReLU_shared", lambda layers: layers.PReLU(shared_axes=[1, 2]))

# Shapes, and the rest of the core.
on_image("Flatten", lambda layers: layers.Flatten())
on_image("Flatten_first", lambda layers: layers.Flatten(data_format="channels_first"))
on_steps("Flatten_steps_first", lambda layers: layers.Flatten(data_format="channels_first"), length=5)
add("Flatten_row", lambda keras, given: keras.layers.Flatten()(given.row(5)))
on_image("Reshape", lambda layers: layers.Reshape((5, -1)))
on_image("Permute", lambda layers: layers.Permute((3, 1, 2)))
add("RepeatVector", lambda keras, given: keras.layers.RepeatVector(3)(given.row(5)))
on_steps("Dense_steps", lambda layers: layers.Dense(3, activation="relu"))
on_image("Dense_image", lambda layers: layers.Dense(3, use_bias=False))
on_steps("EinsumDense", lambda layers: layers.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d"))
on_steps("Masking_value", lambda layers: layers.Masking(0.25))
on_image("Resizing", lambda layers: layers.Resizing(4, 7))
on_image("Resizing_nearest", lambda layers: layers.Resizing(4, 7, interpolation="nearest"))
on_image("Resizing_cropped", lambda layers: layers.Resizing(4, 7, crop_to_aspect_ratio=True))
on_image("Resizing_area", lambda layers: layers.Resizing(3, 7, interpolation="area"))
on_image("CenterCrop", lambda layers: layers.CenterCrop(3, 2))
on_image("CenterCrop_larger", lambda layers: layers.CenterCrop(8, 4))
on_image("Rescaling", lambda layers: layers.Rescaling(0.5, 1.0))
on_image("RandomCrop", lambda layers: layers.RandomCrop(3, 4))
on_image("RandomCrop_larger", lambda layers: layers.RandomCrop(8, 4))
on_image("RandomFlip", lambda layers: layers.RandomFlip())
on_image("RandomRotation", lambda layers: layers.RandomRotation(0.3))
on_image("RandomZoom", lambda layers: layers.RandomZoom(0.3))
on_image("RandomContrast", lambda layers: layers.RandomContrast(0.3))
on_image("RandomBrightness", lambda layers: layers.RandomBrightness(0.3))
on_image("RandomTranslation", lambda layers: layers.RandomTranslation(0.3, 0.2))
on_image("RandomHeight", lambda layers: layers.RandomHeight(0.3))
add(
    "Normalization",
    lambda keras, given: keras.layers.Normalization(mean=[0.1, 0.2, 0.3], variance=[0.5, 0.0, 2.0])(
        given.image()
    ),
)
add("Normalization_weights", lambda keras, given: keras.layers.Normalization()(given.image()))
add(
    "Normalization_inverse",
    lambda keras, given: keras.layers.Normalization(
        mean=[0.1, 0.2, 0.3], variance=[0.5, 0.4, 2.0], invert=True
    )(given.image()),
)
on_steps("Discretization", lambda layers: layers.Discretization([-1.0, 0.0, 2.0]))
for _mode in ("multi_hot", "one_hot", "count"):
    add(
        "CategoryEncoding_%s" % _mode,
        lambda keras, given, mode=_mode: keras.layers.CategoryEncoding(9, output_mode=mode)(
            given.add("words", (1 if mode == "one_hot" else 5,), "int32")
        ),
    )
add("Embedding", lambda keras, given: keras.layers.Embedding(9, 4)(given.words()))
add("Embedding_length", lambda keras, given: keras.layers.Embedding(9, 4, input_length=5)(given.words(5)))
add("Embedding_image", lambda keras, given: keras.layers.Embedding(9, 4)(given.add("words", (3, 5), "int32")))
add(
    "masked_Embedding_floats",
    lambda keras, given: keras.layers.LSTM(3)(
        keras.layers.Embedding(9, 4, mask_zero=True)(given.add("words", (None,)))
    ),
)
on_steps(
    "constraints", lambda layers: layers.Dense(3, kernel_constraint="unit_norm", bias_constraint="non_neg")
)


@case
def shared_layer_with_masks(keras, given):
    """One recurrence called on a masked and on an unmasked sequence."""
    layer = keras.layers.LSTM(3, return_sequences=True)
    return [layer(given.masked()), layer(given.steps())]


@case
def mask_through_dense_and_merge(keras, given):
    layers = keras.layers
    x = given.embedded()
    gates = layers.Dense(4, activation="sigmoid")(x)
    x = layers.Multiply()([x, gates])
    return layers.Bidirectional(layers.LSTM(3))(layers.Dropout(0.3)(x))


@case
def attention_by_layers(keras, given):
    """The attention of many public notebooks: scores, softmax over time, Permute, Multiply, sum."""
    layers = keras.layers
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(given.steps(4, 5))
    scores = layers.Flatten()(layers.Dense(1, activation="tanh")(x))
    weights = layers.Permute((2, 1))(layers.RepeatVector(6)(layers.Activation("softmax")(scores)))
    return layers.LSTM(2)(layers.Multiply()([x, weights]))


@case
def encoder_decoder(keras, given):
    layers = keras.layers
    _, h, c = layers.LSTM(3, return_state=True)(given.embedded())
    target = layers.Embedding(9, 4, mask_zero=True, name="target")(given.words())
    return layers.LSTM(3, return_sequences=True)(target, initial_state=[h, c])


@case
def encoder_decoder_Bidirectional(keras, given):
    layers = keras.layers
    _, h, c, h_back, c_back = layers.Bidirectional(layers.LSTM(3, return_state=True))(given.embedded())
    states = [layers.Concatenate()([h, h_back]), layers.Concatenate()([c, c_back])]
    target = layers.Embedding(9, 4, mask_zero=True, name="target")(given.words())
    return layers.LSTM(6, return_sequences=True)(target, initial_state=states)
