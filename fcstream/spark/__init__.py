"""The same engine on Spark Structured Streaming, for streams that one machine cannot count.

Here belongs whatever imports pyspark: tasks read, decode, admit and count, and the driver charges, draws, seals and
publishes with the engine of the local runner. What a window costs, what it releases and when it closes is the same in
both, and is decided elsewhere.

Top to bottom: `service` (live streams), `files` (files to their end), `answers` (what the driver does with a micro-
batch), `processor` (the operator that holds open windows), `source` (brokers as a Spark source), `sessions`, `stores`
(what tasks counted, for the engine), `pairs` (one huge window), `tasks`, `blocks` (records on their way).
"""
