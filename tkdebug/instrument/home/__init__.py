"""One model of a run, for every face: what is known of kernels, launches, lines and faults."""
