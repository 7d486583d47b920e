"""What tests share: samples, makers of sources, and the programs that run in a process of their own.

* tiers              : Which tier a parameter of a test is of.
* versions           : Marks of tests that need more than the oldest versions of the libraries.
* samples            : The recorded checkpoints of TensorFlow 1, and which format each goes to.
* keras_samples      : The recorded files of Keras.
* keras3_samples     : The recorded exports of Keras 3.
* micro_data         : Examples of three small tasks: keywords, motions and rows of tokens.
* micro_fixtures     : Small trained networks as each kind of source, and what their frameworks answer.
* published_networks : Networks of which sums of real cuDNN's outputs were published.
* recorded_networks  : Networks that real cuDNN ran on a device, and what it computed.
* cases              : One cuDNN node in a small graph, its weights, and what the reference makes of it.
* lowered_recurrences: Recurrences computed in TensorFlow ops, beside the reference.
* graphs             : Small TensorFlow 1 graphs, made in memory.
* state_graphs       : Graphs with state in a variable, and a judge that runs them.
* containers         : The recorded checkpoints as frozen graphs and SavedModels.
* checkpoints        : Checkpoints by TensorFlow and by hand, in both formats, block by block.
* keras_files        : HDF5 files of Keras, made by hand.
* keras_nodes        : CudnnRNNV3 nodes as Keras 3 makes them where it sees a GPU.
* hidden_recurrences : Models whose outputs hide their recurrence.
* command_line       : The command line in this process, and copies of a sample to damage.
* drop_in            : Layers of the drop-in, as tests build them.
* examples           : Examples with every kind of feature, as records, and what a call reads of them.
* batch_work         : What workers of a batch do in tests, and an engine that does it here.
* flag_messages      : The pieces of text in the package that name a flag.
* watched_file       : A file that tells whether it was opened.
* user_processes     : The processes of users, which live as long as a test worker.
* browser            : A browser for the tests of pages.
* javascript         : Node.js with packages of npm, and what artifacts answer in it.
* tflite_tables      : Tables of TensorFlow Lite's schema with the values of their fields.
* micro_models       : TensorFlow Lite files of fixed sizes, made table by table.
* artifacts          : Conversions, and what users' processes answer to them.
* keras_conversions  : The same for files of Keras.
* published_artifacts: Artifacts of networks that real cuDNN ran.
* asking_graphs      : Small graphs that are not converted without a question.
* asking_files       : Files of weights, and of other tools, that need a flag.
* asking_keras       : Files of Keras that need a flag.
* advice             : A row of the tables of advice, and how it is followed.
* advice_calls       : Advice about the flags of a call, formats, a proof.
* advice_graphs      : Advice about sources with a graph.
* advice_keras       : Advice about files of Keras.
* advice_weights     : Advice about weights without a graph.
* troubleshooting    : The paragraphs of docs/troubleshooting/, with their files.

`user/` is what a user's process runs, in which cudnn_convert cannot be imported; `programs/` has what a
test starts to see it killed, counted or watched.
"""
