"""The bytes of messages and lines become columns of numbers.

Here belongs a decoder for each format, data frames, and the batch of good rows and rejections they end in. Each row is
read for itself alone: what one record holds never decides how another is read. Where the bytes come from is in
`fcstream.connectors`.

Files: `registry` (all formats); `decoders` (JSON, CSV and MessagePack lines), `csv_dialect`, `nested` and `paths`
(fields inside others), `payloads` (messages of one or many records), `arrow` (messages; `arrow_rows` reads their
columns and those of tables), `avro`, `cbor`, `protobuf`, `senml`, `otlp`, `influx_lines`, `tagged` (several formats in
one stream) and `schemas`; `envelopes` (topics and headers); `fields` (which field of which record) and `texts`;
`columns`, `rows`, `frames` and `written_frames` (data frames); `batch`.
"""
