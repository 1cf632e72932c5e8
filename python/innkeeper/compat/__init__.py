"""Other packages' interfaces on the managed device, so that programs written for them run."""
