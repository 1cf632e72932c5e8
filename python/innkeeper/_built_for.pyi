TORCH: str
"""The series of PyTorch that the package was built for, as in \"2.13\". The build writes the module."""
