# cudnn-convert in a container: Python and TensorFlow for a CPU; no GPU, no CUDA.
#
#     docker build --tag cudnn-convert .
#     docker run --rm --user "$(id -u)" --volume "$PWD:/work" cudnn-convert inspect model.ckpt
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE cudnn_convert_command.py ./
COPY cudnn_convert cudnn_convert
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir "$(echo /wheels/*.whl)[tensorflow]"
# Any user may run it, and writes nothing but OUT and temporary files.
ENV HOME=/tmp
RUN useradd --no-create-home converter
USER converter
WORKDIR /work
ENTRYPOINT ["cudnn-convert"]
CMD ["--help"]
