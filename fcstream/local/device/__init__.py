"""What runs on a device: its components, its budget, its journal on disk and its replies.

Here belongs whatever a device must remember, charge or refuse. Noise is drawn in `fcstream.local.noise`; questions and
replies travel in `fcstream.local.transport`.

Files: `device`; `components` (what it knows) and `values`; `budget`; `questions` (whether one can be answered);
`drawing` (noise for many devices at once); `journal`, `journal_reader` and `accounts` (what a journal adds up to).
"""
