"""What runs on a device: its budget, its journal, its answers."""
