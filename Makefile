# Two commands do everything on a fresh machine: `make demo` and `make test`. Each sets up its own .venv.

PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3.10 python3 python; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& echo $$p && break; done)
# The TensorFlow that it runs with, of 2.16 to 2.21, and the distribution, `tensorflow` or `tensorflow-cpu`. Others
# than the default get a .venv of their own: make test PYTHON=python3.12 TENSORFLOW=2.18 DISTRIBUTION=tensorflow-cpu
TENSORFLOW := 2.21
DISTRIBUTION := tensorflow
VENV := .venv$(filter-out -2.21,-$(TENSORFLOW))$(patsubst tensorflow%,%,$(DISTRIBUTION))
BIN := $(VENV)/bin
# No releases newer than those of the file: what another project changes turns no test red.
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
FLAGS :=
# What a user's shell sets for other programs: packages beside those of .venv, and asserts that are left out.
unexport PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONPYCACHEPREFIX PYTHONWARNINGS PYTEST_ADDOPTS PIP_USER PIP_TARGET PIP_PREFIX

.PHONY: demo test test-every house kernels docs census-keras census-ops mutants sweep power seeds real lint tf1-restore keras-backends bench crash fuzz clean

demo: $(VENV)/ready
	@rm -rf out/demo
	$(BIN)/cudnn-convert demo out/demo

# Two workers on two cores: more threads in each would only wait for each other. Compiled modules are kept
# whatever the environment says: the tests start many processes, and each would compile them anew.
PYTEST := OPENBLAS_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 PYTHONDONTWRITEBYTECODE= \
	$(BIN)/python -m pytest -n 2

# A file's tests run in one worker, so that what they share is made once; slow tests of a file are better spread.
# FLAGS: those of tests/conftest.py, e.g. --within-budget. mypy is asked beside the newest TensorFlow alone: an older
# NumPy has other types.
test: $(if $(filter 2.21,$(TENSORFLOW)),lint,$(VENV)/ready)
	$(PYTEST) --dist loadfile --fast $(FLAGS)

# What `make test` leaves out too: slow tests, every sample in every format, more examples of properties, and
# what needs a browser, PyTorch, OpenVINO, Ray, a store or cuDNN's headers. Programs of docs/serving in C++ and
# Java run where these name a release of the runtime: ONNXRUNTIME=FOLDER ONNXRUNTIME_JAR=FILE LITERT=FOLDER.
test-every: lint $(VENV)/every
	$(PYTEST) --dist loadgroup

# What runs ONNX and TensorFlow's graphs in Node.js. `tensorflowjs_converter` is installed by hand, as
# docs/serving/javascript.md says, and named: CUDNN_CONVERT_TENSORFLOWJS=converter/bin/tensorflowjs_converter
JAVASCRIPT := onnxruntime-web@1.30.0 onnxruntime-node@1.30.0 @tensorflow/tfjs@4.22.0 @tensorflow/tfjs-backend-wasm@4.22.0

# PyTorch, OpenVINO, cuDNN's headers, Ray, stores and a server of one, LiteRT, a browser where the system has none, and packages of
# JavaScript where there is npm. Their install scripts fetch what is for GPUs.
$(VENV)/every: $(VENV)/docs
	$(PIP) --editable '.[every]'
	command -v chromium chromium-browser google-chrome >/dev/null || $(BIN)/python -m playwright install chromium
	! command -v npm >/dev/null || npm install --silent --ignore-scripts --prefix $(VENV)/javascript $(JAVASCRIPT)
	@touch $@

# The site, in site/: strictly, so that a link that leads nowhere is an error.
docs: $(VENV)/docs
	$(BIN)/python scripts/write_flags.py
	$(BIN)/python scripts/write_errors.py
	$(BIN)/python scripts/write_ops.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/docs: $(VENV)/ready
	$(PIP) --editable '.[docs]'
	@touch $@

# The first tier on other kernels of NumPy and TensorFlow: each comparison needs at most half of its bound.
kernels: $(VENV)/ready
	$(BIN)/python scripts/try_kernels.py

# Figures of the package's structure, each with its bound.
house: $(VENV)/ready
	$(BIN)/python scripts/measure_house.py

# Layers of 14 versions of Keras: does each model answer as the Keras that wrote it?
census-keras: $(VENV)/ready
	$(BIN)/python scripts/check_keras_census.py $(CENSUS)

# Every op beside a recurrence, in every format: does each artifact answer as TensorFlow 1.15? CENSUS="onnx --ops Sum"
census-ops: $(VENV)/ready
	$(BIN)/python scripts/check_op_census.py $(CENSUS)

# Small changes to what turns weights into weights, one at a time; takes long. `rm -r .mutants` measures anew.
mutants: $(VENV)/ready
	$(BIN)/python scripts/mutants

# Forty models that hide parts, their artifacts with one place corrupted: does the proof see every one? An hour or
# two on one core; POWER="--formats onnx --count 4 --only branch" for less.
power: $(VENV)/ready
	$(BIN)/python scripts/power $(POWER)

# Single weights of artifacts, each a little off: does the proof see every one?
sweep: $(VENV)/ready
	for name in gru_bi lstm_bi_2l_states rnn_relu_bi v3_gru_lengths; do for form in onnx tflite; do \
		$(BIN)/python scripts/sweep_weights.py --fixture $$name --format $$form --count 200 || exit 1; \
		done; done

# Every sample in every format that takes it, proven with many seeds: no correct conversion may be refused.
seeds: $(VENV)/ready
	$(BIN)/python scripts/prove_seeds.py --seconds $(or $(SECONDS),3600) $(if $(SEEDS),--seeds $(SEEDS))

# Models that stay outside the repository: each is proven in every format, with other weights it is refused.
real: $(VENV)/ready
	$(BIN)/python scripts/prove_real.py $(or $(MODELS),../shared/real) $(if $(SEEDS),--seeds $(SEEDS))

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# TF1_PYTHON: a Python 3.7 with what scripts/make_tf1_fixtures.py names.
tf1-restore: $(VENV)/ready
	$(TF1_PYTHON) scripts/check_tf1_restore.py $(abspath $(BIN)/python)

# KERAS_PYTHON, ONNX_PYTHON: Pythons without TensorFlow, as the script says.
keras-backends: $(VENV)/ready
	$(BIN)/python scripts/check_keras_backends.py $(KERAS_PYTHON) $(ONNX_PYTHON)

$(VENV)/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.10-3.13 with venv found; install one (on Debian and Ubuntu \
	python3-venv too), or name it: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(PIP) --editable '.[dev]' '$(DISTRIBUTION)==$(TENSORFLOW).*'
	$(PIP) --no-deps 'tf-keras==$(TENSORFLOW).*'
	@touch $@

# Is anything ever lost? 200 conversions and 50 batches that are killed, a full disk; some minutes. SEED repeats.
crash: $(VENV)/ready
	$(BIN)/python scripts/crash $(if $(SEED),--seed $(SEED))

# Ten minutes of mutated files of every kind: read or refused in a line each? SEED and SECONDS as in the script.
fuzz: $(VENV)/ready
	$(BIN)/python scripts/fuzz --seed $(or $(SEED),1) --seconds $(or $(SECONDS),600)

# Speed, as ratios to what a user would have instead; BENCH="--conversions --large --scratch DIR" for costs.
bench: $(VENV)/ready
	$(BIN)/python scripts/bench $(BENCH)

clean:
	rm -rf .venv .venv-* out site
