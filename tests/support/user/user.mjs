// A user in JavaScript, with ONNX Runtime Web, onnxruntime-node or TensorFlow.js: node user.mjs JOBS ANSWERS
//
// JOBS is a file of JSON. Each job has the name of its `runtime`, the path of its `model`, `calls` with the inputs of
// each call by name, and `states`: the output of the last call that an input takes where the call does not give it.
// `outputs` are asked of TensorFlow.js.
// To ANSWERS goes a list for each job, with the outputs of each call by name, or the text of what was thrown.

import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const ARRAYS = {
  bool: Uint8Array,
  int32: Int32Array,
  int64: BigInt64Array,
  float32: Float32Array,
  float64: Float64Array,
};

async function onnxRuntime(name) {
  const ort = await import(name);
  return {
    make: (dtype, values, shape) => new ort.Tensor(dtype, values, shape),
    read: (tensor) => ({ dtype: tensor.type, shape: tensor.dims, values: tensor.data }),
    open: async (path) => {
      const session = await ort.InferenceSession.create(path);
      return (feeds) => session.run(feeds);
    },
  };
}

async function tensorFlow(backend) {
  const tf = await import("@tensorflow/tfjs");
  if (backend === "wasm") await import("@tensorflow/tfjs-backend-wasm");
  await tf.setBackend(backend);
  await tf.ready();
  return {
    // It has no integers of 64 bits: int32 stands for both.
    make: (dtype, values, shape) =>
      dtype === "int64"
        ? tf.tensor(Int32Array.from(values, Number), shape, "int32")
        : tf.tensor(values, shape, dtype),
    read: (tensor) => ({ dtype: tensor.dtype, shape: tensor.shape, values: tensor.dataSync() }),
    open: async (path, outputs) => {
      const { weightsManifest, ...rest } = JSON.parse(readFileSync(path, "utf8"));
      const files = weightsManifest.flatMap((group) => group.paths);
      const bytes = Buffer.concat(files.map((file) => readFileSync(join(dirname(path), file))));
      const weightSpecs = weightsManifest.flatMap((group) => group.weights);
      const weightData = new Uint8Array(bytes).buffer;
      const model = await tf.loadGraphModel({ load: async () => ({ ...rest, weightSpecs, weightData }) });
      return async (feeds) => {
        const found = [await model.executeAsync(feeds, outputs)].flat();
        return Object.fromEntries(outputs.map((name, k) => [name, found[k]]));
      };
    },
  };
}

const RUNTIMES = {
  "onnxruntime-web": () => onnxRuntime("onnxruntime-web"),
  "onnxruntime-node": () => onnxRuntime("onnxruntime-node"),
  "tfjs-cpu": () => tensorFlow("cpu"),
  "tfjs-wasm": () => tensorFlow("wasm"),
};

function decoded({ dtype, shape, bytes }, make) {
  const whole = new Uint8Array(Buffer.from(bytes, "base64")); // at the beginning of a buffer of its own
  return make(dtype, new ARRAYS[dtype](whole.buffer), shape);
}

function encoded({ dtype, shape, values }) {
  const whole = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  return { dtype, shape, bytes: whole.toString("base64") };
}

async function answer({ runtime, model, calls, states, outputs }) {
  const { make, read, open } = await RUNTIMES[runtime]();
  const run = await open(model, outputs);
  const answers = [];
  let carried = {};
  for (const call of calls) {
    const given = Object.entries(call).map(([name, value]) => [name, decoded(value, make)]);
    const found = await run({ ...carried, ...Object.fromEntries(given) });
    carried = Object.fromEntries(Object.entries(states).map(([name, next]) => [name, found[next]]));
    answers.push(Object.fromEntries(Object.entries(found).map(([name, one]) => [name, encoded(read(one))])));
  }
  return answers;
}

const [jobs, answers] = process.argv.slice(2);
const told = [];
for (const job of JSON.parse(readFileSync(jobs, "utf8"))) {
  told.push(await answer(job).catch((error) => String(error.stack)));
}
writeFileSync(answers, JSON.stringify(told));
process.exit(0); // without waiting for the threads of a runtime
