"""The table of training programs under one cap of GPU memory: Innkeeper beside other ways to train."""
