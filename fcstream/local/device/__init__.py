"""What runs on a device: its data, its budget, its journal on disk and its answers.

Here belongs whatever a device must remember or refuse. The noise of an answer is in `fcstream.local.noise`; how an
answer travels is in `fcstream.local.transport`.
"""
