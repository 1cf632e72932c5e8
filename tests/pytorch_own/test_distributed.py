"""PyTorch's own tests of torch.distributed on CPU tensors, out of its wheel: see tools/pytorch_own.py."""

import os

if os.environ.get("PYTORCH_OWN_LOADED") == "1":
    import innkeeper  # noqa: F401
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestSpawned(TestDistBackend, DistributedTest._DistTestBase):
    """Each test in processes of its own, which import this file, and so the package, first."""

    def setUp(self):
        super().setUp()
        self._spawn_processes()


del TestDistBackend, DistributedTest  # Imported test classes would be collected, too.
