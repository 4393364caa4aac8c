"""What runs on a device: its components, its budget, its journal on disk and its replies.

Here belongs whatever a device must remember, charge or refuse. Noise is drawn in `fcstream.local.noise`; questions and
replies travel in `fcstream.local.transport`.
"""
