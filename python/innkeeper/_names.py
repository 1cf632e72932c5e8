"""Names that many modules need. It imports nothing, so each may import it."""

DEVICE = "managed"
"""The device's type, as in ``torch.device("managed", 0)``."""
